package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
	"colabrelay/shared/within"
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
	must(t, harness.Poll(within.Context(t), func() (bool, error) { // the same call finds the same run
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
	want(t, quick(t, u.host, "runs.append(2)"), map[string]any{"success": true})
	if ran := u.ran(); ran != "[2]" {
		t.Errorf("the unchanged request ran %s", ran)
	}
}
