package e2e

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

func isSubmit(m message) bool {
	return m.method == http.MethodPost && m.path == contract.PathExecutions
}

// flipped returns text with one bit of one byte changed; i counts from the end if negative.
func flipped(text []byte, i int) []byte {
	if i < 0 {
		i += len(text)
	}
	text = bytes.Clone(text)
	text[i] ^= 1
	return text
}

// headerFlip changes one character in the middle of a header's value.
func headerFlip(m message, name string) message {
	values := m.header[name]
	if len(values) == 0 {
		panic("the message has no " + name)
	}
	value := []byte(values[0])
	i := len(value) / 2
	if value[i] == 'A' {
		value[i] = 'B'
	} else {
		value[i] = 'A'
	}
	m.header[name] = []string{string(value)}
	return m
}

const (
	recordBytes = 1 << 16 // of sealed bytes
	sealedHead  = 21      // bytes before the first record
)

// changes are what can be done to any message with a sealed body.
func changes() map[string]func(message) message {
	all := map[string]func(message) message{
		"no body":                      func(m message) message { m.body = nil; return m },
		"a byte appended":              func(m message) message { m.body = append(m.body, 0); return m },
		"the body twice":               func(m message) message { m.body = append(m.body, m.body...); return m },
		"no Content-Encoding":          func(m message) message { delete(m.header, "Content-Encoding"); return m },
		"Content-Encoding: gzip":       func(m message) message { m.header.Set("Content-Encoding", "gzip"); return m },
		"Content-Encoding twice":       func(m message) message { m.header.Add("Content-Encoding", "aes128gcm"); return m },
		"no Signature":                 func(m message) message { delete(m.header, "Signature"); return m },
		"no Signature-Input":           func(m message) message { delete(m.header, "Signature-Input"); return m },
		"no Executor-Instance":         func(m message) message { delete(m.header, "Executor-Instance"); return m },
		"another Signature":            func(m message) message { return headerFlip(m, "Signature") },
		"another Signature-Input":      func(m message) message { return headerFlip(m, "Signature-Input") },
		"another Executor-Instance":    func(m message) message { return headerFlip(m, "Executor-Instance") },
		"covered without the body":     func(m message) message { return without(m, ` "content-encoding"`) },
		"covered without the executor": func(m message) message { return without(m, ` "executor-instance"`) },
		"an unsealed body": func(m message) message {
			m.body = []byte(`{"code":"raise SystemExit","status":"succeeded","result":"forged"}`)
			return m
		},
	}
	for name, i := range map[string]int{"salt": 3, "record size": 17, "key id length": 20, "first record": 30, "tag": -1} {
		all["a bit of the "+name] = func(m message) message { m.body = flipped(m.body, i); return m }
	}
	return all
}

func without(m message, component string) message {
	input := m.header.Get("Signature-Input")
	m.header.Set("Signature-Input", strings.Replace(input, component, "", 1))
	return m
}

// tunnel is an executor behind a middleman, and a host.
type tunnel struct {
	*middleman
	t    *testing.T
	vm   *harness.Executor
	host *harness.Host
	dir  string // the laptop's

	calls int
}

// another returns code that differs from that of every call before. The same code would be the same
// run, because a relay asks for the run of a call that got no answer.
func (u *tunnel) another(code string) string {
	u.calls++
	return fmt.Sprintf("%s # call %d", code, u.calls)
}

func newTunnel(t *testing.T, hold string) *tunnel {
	t.Helper()
	e := borrowExecutor(t, stacks.Old(t))
	m := newMiddleman(t, e.Ready.LocalURL)
	dir := t.TempDir()
	h := startHost(t, m.URL, harness.HostConfig{Dir: dir, Env: []string{"RELAY_HOLD=" + hold, "LOCAL_SAVE_DIR=" + dir + "/saved"}})
	u := &tunnel{middleman: m, t: t, vm: e, host: h, dir: dir}
	must(t, harness.Poll(within(t), func() (bool, error) { // the same call finds the same run
		return quick(t, h, "runs = []").Fields["success"] == true, nil
	}))
	return u
}

// during makes a call while all requests of a kind are changed.
func (u *tunnel) during(what string, is func(message) bool, change func(*middleman, message) message, tool string, args map[string]any) harness.Answer {
	u.t.Helper()
	u.tamper(is, change)
	a := call(u.t, u.host, tool, args)
	if u.times() == 0 {
		u.t.Errorf("%s: nothing was changed", what)
	}
	u.tamper(nil, nil)
	if strings.Contains(a.Text, "forged") {
		u.t.Errorf("%s: the answer: %s", what, a.Text)
	}
	return a
}

// refused is during for a run that must fail with one of the errors.
func (u *tunnel) refused(what, code string, is func(message) bool, change func(*middleman, message) message, errors ...string) {
	u.t.Helper()
	a := u.during(what, is, change, "run_code_quick", map[string]any{"code": u.another(code)})
	if !a.IsError || !slices.Contains(errors, a.Error()) {
		u.t.Errorf("%s: the answer: %s; want the error %q", what, a.Text, errors)
	}
	if a.Error() == "bad_request" && !strings.Contains(a.Text, "another network") {
		u.t.Errorf("%s: the answer does not name the cause: %s", what, a.Text)
	}
}

// ran returns what the kernel did since the last call.
func (u *tunnel) ran() string {
	u.t.Helper()
	a := quick(u.t, u.host, "done, runs = runs, []\ndone")
	want(u.t, a, map[string]any{"success": true})
	return a.String("result")
}

// long is code whose request has several records, also compressed.
func long(code string) string {
	random := make([]byte, 200_000)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(random)
	return code + " # " + base64.StdEncoding.EncodeToString(random)
}

// records returns what comes before the records of a body, and the records.
func records(body []byte) (head []byte, all [][]byte) {
	return body[:sealedHead], slices.Collect(slices.Chunk(body[sealedHead:], recordBytes))
}

// recordChanges are what can be done to the records of a body with at least three.
func recordChanges(body []byte) map[string][]byte {
	head, r := records(body)
	join := func(all ...[]byte) []byte { return slices.Concat(head, slices.Concat(all...)) }
	changed := map[string][]byte{
		"the first two records swapped": join(append([][]byte{r[1], r[0]}, r[2:]...)...),
		"the first record repeated":     join(append([][]byte{r[0]}, r...)...),
		"the first record dropped":      join(r[1:]...),
		"the last record repeated":      join(append(r, r[len(r)-1])...),
	}
	for i := range r {
		changed[fmt.Sprint("cut before record ", i)] = join(r[:i]...)
		changed[fmt.Sprint("cut in record ", i)] = join(append(slices.Clone(r[:i]), r[i][:len(r[i])/2])...)
	}
	return changed
}

// What the executor says of a request: its signature is wrong, or it does not open.
var refusals = []string{"wrong_secret", "bad_request"}

func TestAChangedRequestDoesNothing(t *testing.T) {
	u := newTunnel(t, "30s")
	all := changes()
	all["another method"] = func(m message) message { m.method = http.MethodPut; return m }
	all["another route"] = func(m message) message { m.path = contract.PathKernelRestart; return m }
	all["a query"] = func(m message) message { m.query = "s=AAAA"; return m }
	old, ok := u.before(isSubmit)
	if !ok {
		t.Fatal("no run was seen")
	}
	all["the body of an earlier request"] = func(m message) message { m.body = old.request.body; return m }
	all["the body of an answer"] = func(m message) message { m.body = old.answer.body; return m }
	all["an answer"] = func(m message) message { m.header, m.body = old.answer.header, old.answer.body; return m }
	for what, change := range all {
		u.refused(what, "runs.append(1)", isSubmit, func(m *middleman, request message) message { return m.forward(change(request)) }, refusals...)
		if ran := u.ran(); ran != "[]" {
			t.Errorf("%s: the code ran: %s", what, ran)
		}
	}
	// The executor says to the earlier request that it is a replay. That is no answer to this one.
	u.refused("the head of an earlier request", "runs.append(1)", isSubmit, func(m *middleman, request message) message {
		request.header = old.request.header
		return m.forward(request)
	}, "bad_answer")
	if ran := u.ran(); ran != "[]" {
		t.Errorf("with the head of an earlier request the code ran: %s", ran)
	}
	for what := range recordChanges(make([]byte, sealedHead+3*recordBytes)) {
		u.refused(what, long("runs.append(1)"), isSubmit, func(m *middleman, request message) message {
			body, ok := recordChanges(request.body)[what]
			if !ok {
				t.Errorf("%s: the request has %d bytes", what, len(request.body))
			}
			request.body = body
			return m.forward(request)
		}, refusals...)
		if ran := u.ran(); ran != "[]" {
			t.Errorf("%s: the code ran: %s", what, ran)
		}
	}
	want(t, quick(t, u.host, long("runs.append(2)")), map[string]any{"success": true})
	if ran := u.ran(); ran != "[2]" {
		t.Errorf("the unchanged request ran %s", ran)
	}
}

func TestAChangedAnswerIsNotBelieved(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	u := newTunnel(t, "5s") // how long the relay tries while bodies are cut
	all := map[string]func(request, answer message) message{}
	for what, change := range changes() {
		all[what] = func(_, answer message) message { return change(answer) }
	}
	old, ok := u.before(isSubmit)
	if !ok {
		t.Fatal("no run was seen")
	}
	all["another status"] = func(_, answer message) message { answer.status = http.StatusAccepted; return answer }
	all["an error's status"] = func(_, answer message) message { answer.status = http.StatusConflict; return answer }
	all["the answer to an earlier request"] = func(_, answer message) message { return old.answer }
	all["the body of an earlier answer"] = func(_, answer message) message { answer.body = old.answer.body; return answer }
	all["the head of an earlier answer"] = func(_, answer message) message { answer.header = old.answer.header; return answer }
	all["the request itself"] = func(request, answer message) message { request.status = http.StatusOK; return request }
	all["the request's body"] = func(request, answer message) message { answer.body = request.body; return answer }
	all["an answer of nobody"] = func(_, _ message) message {
		return message{status: http.StatusOK, header: http.Header{"Content-Type": {"application/json"}}, body: []byte(`{"status":"succeeded","result":"forged"}`)}
	}
	for what, change := range all {
		u.refused(what, "runs.append(1)", isSubmit, func(m *middleman, request message) message {
			return change(request, m.forward(request))
		}, "bad_answer", "not_executor", "unreachable") // unreachable: the body was cut
		if ran := u.ran(); ran != "[1]" {
			t.Errorf("%s: the code ran %s, want once, whatever came back", what, ran)
		}
	}
}
