package remoterun

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/history"
	"colabrelay/relay/terminal"
	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/line/linetest"
	"colabrelay/shared/stacks"
	"colabrelay/shared/within"
)

const secret = "a secret of relay/remoterun's tests, 32 bytes or more"

// pool has the executors that the tests share.
var pool = harness.Pool{Secret: secret}

func TestMain(m *testing.M) { pool.Main(m) }

// startVM returns the address of an executor that the test has for itself.
func startVM(t *testing.T) string {
	t.Helper()
	return pool.Borrow(t, stacks.Old(t).Python).Ready.LocalURL
}

// newClient returns a client of an executor.
func newClient(t *testing.T, url string) *client.Client {
	t.Helper()
	s, err := auth.NewSecret(secret)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Config{BaseURL: url, Secret: s})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// console is a person who types nothing.
type console struct{ out, err harness.Output }

func (c *console) console(t *testing.T) Console {
	return Console{Streams: terminal.Streams{In: strings.NewReader(""), Out: &c.out, Err: &c.err}, PictureDir: t.TempDir()}
}

// A file or pipe gets the last text of each widget, once, and nothing of a closed one.
func TestWidgetsArePrintedAsTheyAreAtTheEnd(t *testing.T) {
	var c console
	p := newPrinter(func(string) func(context.Context, contract.Blob, io.Writer) error { return nil }, c.console(t))
	show := func(id, text string) {
		p.event(t.Context(), "run", contract.Event{Type: contract.EventWidgetView, DisplayID: id, Data: map[string]json.RawMessage{"text/plain": json.RawMessage(strconv.Quote(text))}})
	}
	show("a", "0%")
	show("b", "closed later")
	p.event(t.Context(), "run", contract.Event{Type: contract.EventStream, Name: contract.Stdout, Text: "printed"})
	show("b", "")
	show("a", "50%\r100%")
	p.finish()
	if got, want := c.out.String(), "printed\n100%\n"; got != want {
		t.Errorf("printed %q, want %q", got, want)
	}
}

// The run may end just before the person presses Ctrl-C.
func TestAnInterruptAfterTheEndChangesNoOutcome(t *testing.T) {
	vm := startVM(t)
	toVM := newClient(t, vm)
	done, err := toVM.Submit(t.Context(), contract.Submit{Code: "print('done')", TimeoutSeconds: 3600, WaitSeconds: 30})
	within.Until(t, "the run has ended", func() bool {
		if err == nil && !done.End {
			done, err = toVM.Execution(t.Context(), done.ExecutionID, 0, 0, 0)
		}
		return err != nil || done.End
	})
	if err != nil {
		t.Fatal(err)
	}
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	for name, answer := range map[string]contract.Execution{"with the answer": done, "without the answer": {ExecutionID: done.ExecutionID}} {
		t.Run(name, func(t *testing.T) {
			var c console
			r := &run{VM: VM{Runtime: "vm", Client: toVM}, answer: answer, out: newPrinter(toVM.Blobs, c.console(t))}
			if err := r.follow(interrupted); err != nil || c.out.String() != "done\n" || r.exec.Status != contract.StatusSucceeded {
				t.Errorf("%v, printed %q, status %s", err, c.out.String(), r.exec.Status)
			}
		})
	}
}

func TestAKeptRunWhoseEndIsUnknownSaysWhatWasSeenLast(t *testing.T) {
	for status, want := range map[contract.Status]string{
		contract.StatusRunning:   "colab-relay: the run was running when the VM last answered\n",
		contract.StatusSucceeded: "",
	} {
		var c console
		kept := history.Whole{Run: history.Run{Execution: contract.Execution{ExecutionID: "e", Status: status, Events: []contract.Event{{Type: contract.EventStream, Text: "here\n"}}}}}
		if err := PrintKept(t.Context(), kept, LogOptions{}, c.console(t)); err != nil || c.out.String() != "here\n" || c.err.String() != want {
			t.Errorf("%s: %v %q %q", status, err, c.out.String(), c.err.String())
		}
	}
}

// A program may catch Ctrl-C, save, and choose its exit code.
func TestCodeThatWasInterruptedKeepsItsExitCode(t *testing.T) {
	e := contract.Execution{Status: contract.StatusInterrupted, Error: &contract.ExecutionError{EName: "SystemExit", EValue: "3"}}
	if err := outcome(e); err != ExitCode(3) {
		t.Errorf("after sys.exit(3): %v", err)
	}
	if e.Error.EName = "KeyboardInterrupt"; outcome(e) == nil {
		t.Error("an interrupt is a success")
	}
}

func TestReadersOfLogsLeaveTheRunAlone(t *testing.T) {
	vm := VM{Runtime: "vm", Client: newClient(t, startVM(t))}
	e, err := Start(t.Context(), vm, Code{Text: "print('here', flush=True)\ninput()", Timeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var c console
	ended := make(chan error)
	go func() { ended <- Logs(ctx, vm, e, LogOptions{Follow: true}, c.console(t)) }()
	within.Until(t, "it is printed", func() bool { return strings.Contains(c.out.String(), "here") })
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if e, err := vm.Client.Execution(t.Context(), e.ExecutionID, 0, 0, 0); err != nil || e.Status.Finished() {
		t.Errorf("the run is %s, %v", e.Status, err)
	}
	if _, err := vm.Client.Interrupt(t.Context(), e.ExecutionID); err != nil {
		t.Error(err)
	}
}

func stream(offset int64, name, text string) contract.Event {
	return contract.Event{Offset: offset, Type: contract.EventStream, Name: name, Text: text}
}

// The last lines are those of all that would be printed: each is as long as in the whole.
func TestTailPrintsTheEndOfWhatTheWholeLogPrints(t *testing.T) {
	object, _ := json.Marshal("<table\n of\n3 lines>")
	events := []contract.Event{
		stream(0, "stdout", "a\nb"), stream(1, "stdout", "c\n"), stream(2, "stderr", "warn"), stream(3, "stdout", " on\n\n"),
		{Offset: 4, Type: contract.EventExecuteResult, Data: map[string]json.RawMessage{"text/plain": object}},
		stream(5, "stdout", "open"),
		{Offset: 6, Type: contract.EventInputRequest, Prompt: "who? "},
		{Offset: 7, Type: contract.EventClearOutput},
		stream(8, "stdout", "50%"),
		{Offset: 9, Type: contract.EventGap, Events: 2, Bytes: 10},
		{Offset: 11, Type: contract.EventInputRequest, Password: true},
		{Offset: 12, Type: contract.EventStream, Name: "stdout", Text: "long\n", Cut: "9 bytes"},
		{Offset: 13, Type: contract.EventDisplayData, Data: map[string]json.RawMessage{contract.OwnMIME + "x": json.RawMessage(`1`)}},
		{Offset: 14, Type: contract.EventError, EName: "E", Traceback: []string{"Traceback", "  here\n  there", "E: x"}},
		stream(15, "stdout", "last"),
		{Offset: 16, Type: contract.EventDisplayData, Data: map[string]json.RawMessage{"image/png": json.RawMessage(`"AAAA"`)}},
	}
	pictures := t.TempDir()
	printed := func(tail *int) string {
		var both console
		c := both.console(t)
		c.Err, c.PictureDir = c.Out, pictures // in order
		kept := history.Whole{Run: history.Run{Execution: contract.Execution{ExecutionID: "e", Status: contract.StatusSucceeded, Events: events}}}
		if err := PrintKept(t.Context(), kept, LogOptions{Tail: tail}, c); err != nil {
			t.Fatal(err)
		}
		return both.out.String()
	}
	whole := strings.SplitAfter(strings.TrimSuffix(printed(nil), "\n"), "\n")
	if len(whole) != 19 {
		t.Errorf("%d lines: %q", len(whole), whole)
	}
	for n := range len(whole) + 3 {
		got := strings.TrimSuffix(printed(&n), "\n")
		want := strings.Join(whole[max(0, len(whole)-n):], "")
		if got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

// broken is a network on which each submit ends with this error.
type broken struct {
	executor *linetest.Executor
	err      error
}

func (b broken) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodGet {
		return nil, b.err
	}
	arrived := httptest.NewRequest(req.Method, req.URL.String(), nil)
	arrived.Header = req.Header.Clone()
	x, _, err := b.executor.Open(arrived)
	if err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	b.executor.Answer(w, x, http.StatusOK, []byte(`{"kernel_id":"k"}`))
	return w.Result(), nil
}

func TestAnUnansweredSubmitSaysWhetherTheCodeWasRun(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	for want, end := range map[string]error{"the code was not run: ": refused, "the code may have been submitted": client.Arrived(refused)} {
		synctest.Test(t, func(t *testing.T) { // the client tries for a while
			secret := auth.GenerateSecret()
			network := broken{linetest.NewExecutor(secret, contract.Instance{ID: "i", Start: "s"}, time.Now), end}
			c, err := client.New(client.Config{BaseURL: "http://x.test", Secret: secret, Transport: network})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			ctx, cancel := context.WithTimeout(client.WithReachLimit(t.Context()), time.Minute)
			defer cancel()
			_, err = c.Submit(ctx, contract.Submit{Code: "1"})
			if err := unsubmitted(err, "r1"); err == nil || !strings.HasPrefix(err.Error(), want) || client.MayRun(err) != strings.Contains(err.Error(), "request_id r1") {
				t.Errorf("%v, want %q", err, want)
			}
		})
	}
	refusal := &contract.Error{Code: contract.CodeQueueFull, Message: "full"}
	if got := unsubmitted(refusal, "r1"); got != error(refusal) {
		t.Errorf("a refusal: %v", got)
	}
}
