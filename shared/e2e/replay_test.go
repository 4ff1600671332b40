package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/tier"
)

func TestARequestSentTwiceRunsOnce(t *testing.T) {
	u := newTunnel(t, "30s")
	for i, which := range []string{"first", "second"} {
		first := true
		a := u.during("the "+which+" answer", isSubmit, func(m *middleman, request message) message {
			answers := []message{m.forward(request), m.forward(request)}
			if !first {
				return answers[0]
			}
			first = false
			return answers[i]
		}, "run_code_quick", map[string]any{"code": "runs.append(1)\n'once'"})
		want(t, a, map[string]any{"success": true, "result": "'once'"})
		if ran := u.ran(); ran != "[1]" {
			t.Errorf("the %s answer came back: the code ran %s", which, ran)
		}
	}
}

// Both answers belong to the same request, but the head of one does not open the body of the
// other.
func TestTheTwoAnswersToARequestSentTwiceCannotBeMixed(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	u := newTunnel(t, "30s")
	for what, mix := range map[string]func(first, second message) message{
		"the result under the refusal's head": func(first, second message) message { second.body = first.body; return second },
		"the refusal under the result's head": func(first, second message) message { first.body = second.body; return first },
	} {
		u.refused(what, "runs.append(1)", isSubmit, func(m *middleman, request message) message {
			first := m.forward(request)
			return mix(first, m.forward(request))
		}, "bad_answer")
		if ran := u.ran(); ran != "[1]" {
			t.Errorf("%s: the code ran %s", what, ran)
		}
	}
}

// The operator sends everything again that it has seen, to the same executor.
func TestAllRequestsOfASessionSentAgainDoNothing(t *testing.T) {
	u := newTunnel(t, "30s")
	asked := quick(t, u.host, "runs.append(input())")
	want(t, call(t, u.host, "provide_input", map[string]any{"execution_id": asked.String("execution_id"), "text": "1"}), map[string]any{"success": true})
	want(t, call(t, u.host, "get_execution", map[string]any{"execution_id": asked.String("execution_id"), "wait_seconds": 20}), map[string]any{"status": "succeeded"})
	want(t, call(t, u.host, "cleanup_colab", nil), map[string]any{"success": true})
	want(t, call(t, u.host, "restart_kernel", nil), map[string]any{"success": true})
	want(t, quick(t, u.host, "runs = ['after the restart']"), map[string]any{"success": true})

	past := u.all()
	seen := map[string]bool{}
	for _, e := range past {
		seen[e.request.method+" "+e.request.path[strings.LastIndex(e.request.path, "/"):]] = true
		if e.request.path == contract.PathHealth && e.request.header.Get("Signature") == "" {
			continue
		}
		answer := u.forward(e.request)
		if answer.status != http.StatusUnauthorized || len(answer.body) > 600 {
			t.Errorf("%s %s again: status %d, %d bytes", e.request.method, e.request.path, answer.status, len(answer.body))
		}
	}
	for _, kind := range []string{"POST /executions", "POST /input", "POST /cleanup", "POST /restart"} {
		if !seen[kind] {
			t.Errorf("the session had no %s: %v", kind, seen)
		}
	}
	if ran := u.ran(); ran != "['after the restart']" {
		t.Errorf("the kernel has %s", ran)
	}
}

// An old request is delivered in the place of each new one.
func TestAnOldRequestInsteadOfANewOneDoesNothing(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	u := newTunnel(t, "30s")
	want(t, quick(t, u.host, "runs.append('old')"), map[string]any{"success": true})
	old, _ := u.before(isSubmit)
	if ran := u.ran(); ran != "['old']" {
		t.Errorf("the kernel ran %s", ran)
	}
	u.refused("an old request", "runs.append('new')", isSubmit, func(m *middleman, _ message) message { return m.forward(old.request) }, "bad_answer")
	if ran := u.ran(); ran != "[]" {
		t.Errorf("the kernel ran %s", ran)
	}
}

// pairs makes two concurrent calls, one through each host, meet and exchanges what swap says. It
// returns the answers.
func (u *tunnel) pairs(hosts [2]*harness.Host, swap func(m *middleman, a, b message) (message, message)) [2]harness.Answer {
	u.t.Helper()
	type visitor struct {
		request message
		answer  chan message
	}
	meet := make(chan visitor)
	u.tamper(isSubmit, func(m *middleman, request message) message {
		me := visitor{request, make(chan message, 1)}
		select {
		case meet <- me:
			return <-me.answer
		case other := <-meet:
			mine, theirs := swap(m, me.request, other.request)
			other.answer <- theirs
			return mine
		case <-time.After(3 * time.Second): // the other call has ended
			return m.forward(request)
		}
	})
	var answers [2]harness.Answer
	var both sync.WaitGroup
	for i := range answers {
		code := u.another(fmt.Sprintf("runs.append(%d)\n'result %d'", i, i))
		both.Go(func() {
			var err error
			answers[i], err = hosts[i].Call(u.t.Context(), "run_code_quick", map[string]any{"code": code})
			if err != nil {
				u.t.Error(err)
			}
		})
	}
	both.Wait()
	if u.times() < 2 {
		u.t.Error("the two calls did not meet")
	}
	u.tamper(nil, nil)
	return answers
}

func TestSwappedRequestsAndAnswersAreRefused(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	u := newTunnel(t, "30s")
	another := startHost(t, u.URL, harness.HostConfig{})
	want(t, quick(t, another, "None"), map[string]any{"success": true}) // it has asked for the instance
	for what, c := range map[string]struct {
		swap func(m *middleman, a, b message) (message, message)
		ran  bool
	}{
		"bodies of requests": {func(m *middleman, a, b message) (message, message) {
			a.body, b.body = b.body, a.body
			return m.forward(a), m.forward(b)
		}, false},
		"heads of requests": {func(m *middleman, a, b message) (message, message) {
			a.header, b.header = b.header, a.header
			return m.forward(a), m.forward(b)
		}, false},
		"bodies of answers": {func(m *middleman, a, b message) (message, message) {
			first, second := m.forward(a), m.forward(b)
			first.body, second.body = second.body, first.body
			return first, second
		}, true},
		"answers": {func(m *middleman, a, b message) (message, message) {
			first, second := m.forward(a), m.forward(b)
			return second, first
		}, true},
	} {
		for _, second := range []*harness.Host{u.host, another} {
			for i, a := range u.pairs([2]*harness.Host{u.host, second}, c.swap) {
				if a.String("result") == fmt.Sprintf("'result %d'", 1-i) {
					t.Errorf("%s swapped: call %d got the other one's result: %s", what, i, a.Text)
				}
				if !a.IsError {
					t.Errorf("%s swapped: call %d succeeded: %s", what, i, a.Text)
				}
			}
			ran := u.ran()
			if ran != "[]" && !c.ran || c.ran && ran != "[0, 1]" && ran != "[1, 0]" {
				t.Errorf("%s swapped: the kernel ran %s", what, ran)
			}
		}
	}
}

func isList(m message) bool { return m.method == http.MethodGet && m.path == contract.PathFiles }

func TestAChangedQueryIsRefused(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	u := newTunnel(t, "30s")
	want(t, quick(t, u.host, "import os\nos.mkdir('forged')\nopen('forged/file', 'w').close()\nos.mkdir('asked')"), map[string]any{"success": true})
	want(t, call(t, u.host, "list_colab_files", map[string]any{"path": "forged"}), map[string]any{"success": true, "file_count": 1})
	old, ok := u.before(isList)
	if !ok || !strings.HasPrefix(old.request.query, "s=") {
		t.Fatalf("the query of a listing: %q", old.request.query)
	}
	all := map[string]func(string) string{
		"none":          func(string) string { return "" },
		"an old one":    func(string) string { return old.request.query },
		"twice":         func(q string) string { return q + "&" + q },
		"one more":      func(q string) string { return q + "&path=forged" },
		"another first": func(q string) string { return "path=forged&" + q },
		"unsealed":      func(string) string { return "path=forged" },
		"another name":  func(q string) string { return "t" + q[1:] },
		"cut":           func(q string) string { return q[:len(q)-4] },
		"longer":        func(q string) string { return q + "AAAA" },
		"padded":        func(q string) string { return q + "%3D" },
	}
	for _, at := range []int{2, 20, 26, 28, 40, len(old.request.query) - 1} {
		all[fmt.Sprint("character ", at)] = func(q string) string {
			other := "A"
			if q[at] == 'A' {
				other = "B"
			}
			return q[:at] + other + q[at+1:]
		}
	}
	for what, change := range all {
		a := u.during(what, isList, func(m *middleman, request message) message {
			request.query = change(request.query)
			return m.forward(request)
		}, "list_colab_files", map[string]any{"path": "asked"})
		if !a.IsError || !slices.Contains(refusals, a.Error()) {
			t.Errorf("the query %s: %s", what, a.Text)
		}
	}
	want(t, call(t, u.host, "list_colab_files", map[string]any{"path": "asked"}), map[string]any{"success": true, "file_count": 0})
}

func TestBytesAfterAMessageWithoutABodyAreRefused(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	u := newTunnel(t, "5s") // how long run_code_long waits
	long := call(t, u.host, "run_code_long", map[string]any{"code": "import time\nfor n in range(600): time.sleep(.1)"})
	id := map[string]any{"execution_id": long.String("execution_id")}
	old, ok := u.before(isSubmit)
	if !ok {
		t.Fatal("no run was seen")
	}
	for what, body := range map[string][]byte{"a byte": {0}, "JSON": []byte("{}"), "a sealed body": old.request.body} {
		for tool, is := range map[string]func(message) bool{
			"list_executions":     func(m message) bool { return m.method == http.MethodGet && m.path == contract.PathExecutions },
			"interrupt_execution": func(m message) bool { return strings.HasSuffix(m.path, "/interrupt") },
		} {
			args := id
			if tool == "list_executions" {
				args = nil
			}
			a := u.during(what, is, func(m *middleman, request message) message {
				if len(request.body) > 0 {
					t.Errorf("%s has a body", tool)
				}
				request.body = body
				return m.forward(request)
			}, tool, args)
			if !a.IsError || !slices.Contains(refusals, a.Error()) {
				t.Errorf("%s in %s: %s", what, tool, a.Text)
			}
		}
	}
	want(t, call(t, u.host, "get_execution", id), map[string]any{"status": "running"})
	want(t, call(t, u.host, "interrupt_execution", id), map[string]any{"success": true})
}
