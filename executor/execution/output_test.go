package execution

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"colabrelay/executor/comm"
	"colabrelay/executor/journal"
	"colabrelay/executor/jupyter"
	"colabrelay/shared/contract"
	"colabrelay/shared/memorydir"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

// unstartedRun is a run whose record exists and which no kernel has.
func unstartedRun(t *testing.T) *run {
	t.Helper()
	return unstartedIn(t, unstarted(t))
}

func unstartedIn(t *testing.T, q *Queue) *run {
	t.Helper()
	record, err := q.journal.Create(contract.Submit{RequestID: "x", Code: "1"})
	must(t, err)
	return &run{record: record, log: slog.New(slog.DiscardHandler), widgets: &comm.Board{}}
}

// quoted is a JSON text of n bytes with its quotes.
func quoted(n int) json.RawMessage {
	return json.RawMessage(`"` + strings.Repeat("x", n-2) + `"`)
}

// numbered is n MIME types with a payload each.
func numbered(n int, payload json.RawMessage) map[string]json.RawMessage {
	all := map[string]json.RawMessage{}
	for i := range n {
		all[fmt.Sprintf("x/%04d", i)] = payload
	}
	return all
}

// A display is kept at its bounds, and is a gap one past them.
func TestADisplayAtItsBounds(t *testing.T) {
	t.Parallel()
	r := unstartedRun(t)
	for name, display := range map[string]func(over int) jupyter.DisplayData{
		"MIME types": func(over int) jupyter.DisplayData {
			return jupyter.DisplayData{Data: numbered(maxTypes+over, quoted(3))}
		},
		"payloads": func(over int) jupyter.DisplayData {
			return jupyter.DisplayData{Data: numbered(15+over, quoted(contract.InlineMIMEBytes))}
		},
		"metadata": func(over int) jupyter.DisplayData {
			return jupyter.DisplayData{Metadata: quoted(contract.MaxEventBytes - 2*maxAdded + over*2*maxAdded)}
		},
		"escapes": func(over int) jupyter.DisplayData {
			return jupyter.DisplayData{Data: numbered(5+over, json.RawMessage(`"`+strings.Repeat("<", 30_000)+`"`))}
		},
		"the display_id": func(over int) (d jupyter.DisplayData) {
			d.Transient.DisplayID = strings.Repeat("d", maxDisplayID+over)
			return d
		},
	} {
		for over := range 2 {
			var e contract.Event
			if kept := r.display(&e, display(over)); kept != (over == 0) {
				t.Errorf("%s, %d past the bound: kept %v", name, over, kept)
			}
		}
	}
	var e contract.Event
	r.display(&e, jupyter.DisplayData{Data: map[string]json.RawMessage{"at": quoted(contract.InlineMIMEBytes), "past": quoted(contract.InlineMIMEBytes + 1)}})
	for mime, isBlob := range map[string]bool{"at": false, "past": true} {
		if strings.HasPrefix(string(e.Data[mime]), `{"blob"`) != isBlob {
			t.Errorf("%s the bound, the payload is %.20s", mime, e.Data[mime])
		}
	}
}

func TestAnErrorPastItsBoundIsKeptAsAPayload(t *testing.T) {
	t.Parallel()
	const half = contract.MaxErrorEvent / 2
	q := unstarted(t)
	r := unstartedIn(t, q)
	for over := range 2 {
		for name, e := range map[string]jupyter.ErrorContent{
			"the name":       {EName: strings.Repeat("e", maxErrorName+over), Traceback: []string{"name"}},
			"the text":       {EValue: strings.Repeat("v", maxErrorValue+over), Traceback: []string{"text"}},
			"the frames":     {Traceback: []string{strings.Repeat("a", half-1), strings.Repeat("b", half), strings.Repeat("c", 1+over)}},
			"the last frame": {Traceback: []string{"\x1b[31m", strings.Repeat("d", 2*half-5+over)}},
		} {
			var ev contract.Event
			r.failure(&ev, e)
			if size := len(ev.EName) + len(ev.EValue) + total(ev.Traceback); (ev.Data == nil) != (over == 0) || ev.Cut != "" || size > contract.MaxErrorEvent+maxErrorName+maxErrorValue {
				t.Errorf("%s, %d past the bound: %d bytes, cut %q, data %s", name, over, size, ev.Cut, ev.Data)
			}
			if over == 0 {
				continue
			}
			var ref contract.BlobRef
			want := colours.ReplaceAllString(strings.Join(e.Traceback, "\n"), "")
			if err := json.Unmarshal(ev.Data["text/plain"], &ref); err != nil || ref.Blob.SHA256 != fmt.Sprintf("%x", sha256.Sum256([]byte(want))) {
				t.Errorf("%s: kept as %+v, %v", name, ref, err)
			}
		}
	}
}

func TestAWaitForInputEndsAtItsBound(t *testing.T) {
	t.Parallel()
	began := time.Now()
	for past, want := range map[time.Duration]cause{-time.Nanosecond: causeNone, 0: causeInputWait} {
		r := unstartedRun(t)
		r.inputRequest, r.inputSince = new(jupyter.Message), began
		r.checkDeadlines(began.Add(contract.MaxInputWait + past))
		if r.cause != want {
			t.Errorf("%v past the bound: cause %v, want %v", past, r.cause, want)
		}
	}
}

func TestWhatTheBoundOfAMessageCutIsAGap(t *testing.T) {
	t.Parallel()
	q := unstarted(t)
	r := unstartedIn(t, q)
	for _, kind := range []string{jupyter.MsgStream, jupyter.MsgDisplayData, jupyter.MsgError} {
		r.output(&jupyter.Message{Header: jupyter.Header{MsgType: kind}, Content: []byte(`{"name":"stdout","text":"tail"}`), Cut: 7}, time.Now())
	}
	r.flush(time.Now())
	gaps := 0
	for _, e := range read(t, q.journal, r.record.ID).Events {
		if e.Type == contract.EventGap && e.Bytes >= 7 {
			gaps++
		}
	}
	if gaps != 3 {
		t.Errorf("%d gaps", gaps)
	}
}

func TestLateOutputOfAThreadIsKept(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	q := newBench(t, stacks.Old(t), settings{ownKernel: true})
	x := q.run("import threading, time\ndef late():\n  time.sleep(.3)\n  print('late', flush=True)\nthreading.Thread(target=late).start()")
	wantStatus(t, x, contract.StatusSucceeded)
	within.Until(t, "the late output has arrived", func() bool {
		x = read(t, q.journal, x.ExecutionID)
		return x.NextOffset > 0
	})
	if text(x, contract.Stdout) != "late\n" {
		t.Errorf("late output = %+v", x.Events)
	}
}

func TestShutdownInterruptsAndCancels(t *testing.T) {
	t.Parallel()
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		q := newBench(t, s, settings{})
		running := q.submit("print('on', flush=True)\nwhile True: pass", 0)
		waiting := q.submit("1", 0)
		q.awaitEvent(running, 0)
		q.stop()
		wantStatus(t, q.settle(running), contract.StatusInterrupted)
		wantStatus(t, q.settle(waiting), contract.StatusCancelled)
		if _, err := q.Submit("", contract.Submit{RequestID: "late", Code: "1"}); !errors.Is(err, ErrShuttingDown) {
			t.Errorf("submit after the shutdown: %v", err)
		}
	})
}

func TestRunWithoutAReplyEndsAndFreesTheKernel(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		q := newBench(t, s, settings{ownKernel: true})
		q.run("kept = 1")
		// ipykernel can't encode a lone surrogate and sends no reply.
		x := q.run("raise ValueError(chr(0xd800))")
		wantStatus(t, x, contract.StatusFailed)
		if got := text(q.run("print(kept)"), contract.Stdout); got != "1\n" {
			t.Errorf("the next run printed %q", got)
		}
	})
}

// The kernel flushes sys.stdout and sys.stderr after each run, and sends no end of the run if
// that fails.
func TestAStreamThatCannotBeFlushedIsSetBack(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		q := newBench(t, s, settings{ownKernel: true})
		for _, code := range []string{
			"sys.stdout = None",
			"class Broken:\n    def flush(self): raise OSError('x' * 1000)\nsys.stdout = sys.stderr = Broken()",
		} {
			x := q.run("import sys\n" + code)
			if !x.Status.Finished() || !strings.Contains(text(x, contract.Stderr), "was reset") {
				t.Errorf("%s: %s, %q", code, x.Status, text(x, contract.Stderr))
			}
			if got := text(q.run("print('next')"), contract.Stdout); got != "next\n" {
				t.Errorf("after %s: %q", code, got)
			}
		}
		kept := q.run("import io, sys\nsys.stdout = io.StringIO()\nprint('kept')")
		if got := text(q.run("print(sys.stdout.getvalue(), file=sys.stderr)"), contract.Stderr); text(kept, contract.Stderr) != "" || got != "kept\n\n" {
			t.Errorf("a stream of the user's: %q, %q", text(kept, contract.Stderr), got)
		}
	})
}

// openPrompt is the event of the prompt that the run waits at. Output that was printed before
// may follow it: it comes from another socket.
func openPrompt(t *testing.T, x contract.Execution) contract.Event {
	t.Helper()
	wantStatus(t, x, contract.StatusWaitingForInput)
	for _, event := range slices.Backward(x.Events) {
		if event.Type == contract.EventInputRequest {
			return event
		}
	}
	t.Fatalf("no prompt among %+v", x.Events)
	return contract.Event{}
}

func TestTextAnswersOnlyThePromptThatItNames(t *testing.T) {
	t.Parallel()
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		q := newBench(t, s, settings{})
		id := q.submit("print('first', flush=True)\na = input('a? ')\nb = input('b? ')\nc = input('c? ')\nprint(a, b, c)", 0)
		first := openPrompt(t, q.settle(id))
		for _, other := range []int64{first.Offset + 1, first.Offset + 100, 1 << 62} {
			if err := q.Input(t.Context(), id, contract.Input{Text: "no", Offset: &other}); !errors.Is(err, ErrOtherPrompt) {
				t.Errorf("offset %d, open is %d: %v", other, first.Offset, err)
			}
		}
		answer := contract.Input{Text: "A", Offset: &first.Offset, InputID: "one"}
		must(t, q.Input(t.Context(), id, answer))
		second := openPrompt(t, q.settle(id))
		if err := q.Input(t.Context(), id, answer); err != nil { // its answer was lost
			t.Errorf("the same answer again: %v", err)
		}
		answer.InputID = "two"
		if err := q.Input(t.Context(), id, answer); !errors.Is(err, ErrOtherPrompt) {
			t.Errorf("another answer to the same prompt: %v", err)
		}
		must(t, q.Input(t.Context(), id, contract.Input{Text: "B", Offset: &second.Offset}))
		openPrompt(t, q.settle(id))
		last := contract.Input{Text: "C", InputID: "three"} // for whichever is open
		must(t, q.Input(t.Context(), id, last))
		x := q.settle(id)
		if err := q.Input(t.Context(), id, last); err != nil {
			t.Errorf("the last answer again, after the end: %v", err)
		}
		wantStatus(t, x, contract.StatusSucceeded)
		if got := text(x, contract.Stdout); got != "first\nA B C\n" {
			t.Errorf("stdout = %q", got)
		}
	})
}

func TestAPasswordPromptRefusesTextFromThoseWhoDoNotKnow(t *testing.T) {
	t.Parallel()
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		q := newBench(t, s, settings{})
		id := q.submit("import getpass\nprint(len(getpass.getpass('key: ')))", 0)
		prompt := openPrompt(t, q.settle(id))
		if !prompt.Password {
			t.Fatalf("the event is %+v", prompt)
		}
		if err := q.Input(t.Context(), id, contract.Input{Text: "hunter2", Offset: &prompt.Offset}); !errors.Is(err, ErrPassword) {
			t.Errorf("without password: %v", err)
		}
		wantStatus(t, q.settle(id), contract.StatusWaitingForInput)
		must(t, q.Input(t.Context(), id, contract.Input{Text: "hunter2", Offset: &prompt.Offset, Password: true}))
		x := q.settle(id)
		if got := text(x, contract.Stdout); got != "7\n" || strings.Contains(got, "hunter2") {
			t.Errorf("stdout = %q", got)
		}
	})
}

// FuzzMessages turns any contents of messages, which code in the kernel may send itself, into
// events. Each event is within its bound and can be read again.
func FuzzMessages(f *testing.F) {
	f.Add("stream", []byte(`{"name":"stdout","text":"a\ud800\u0000b"}`), "display_data", []byte(`{"data":{"image/png":"AA=","text/plain":["a"],"x/y":{"a":1}},"metadata":{},"transient":{"display_id":"d"}}`), int64(0))
	f.Add("error", []byte(`{"ename":"E","evalue":1,"traceback":["a",2]}`), "execute_result", []byte(`{"execution_count":-1,"data":{"":null,"application/json":1e999}}`), int64(5))
	f.Add("clear_output", []byte(`{"wait":true}`), "update_display_data", []byte(`{"data":{"image/png":""},"transient":[]}`), int64(-1))
	f.Add("stream", []byte(`{"text":"\u12`), "stream", []byte(`{"name":"`+strings.Repeat("n", 300)+`","text":"x"}`), int64(9))
	f.Add("execute_reply", []byte(`{"status":"error","ename":"E","traceback":[""],"payload":[{"source":"page","data":{"text/plain":"p"}}]}`), "input_request", []byte(`{"prompt":"?","password":true}`), int64(0))
	f.Fuzz(func(t *testing.T, firstType string, first []byte, secondType string, second []byte, cut int64) {
		j, err := journal.Open(journal.Config{Dir: memorydir.New(t), Log: slog.New(slog.DiscardHandler)})
		must(t, err)
		record, err := j.Create(contract.Submit{RequestID: "r", Code: "1"})
		must(t, err)
		r := &run{record: record, log: slog.New(slog.DiscardHandler), widgets: &comm.Board{}}
		for _, m := range []*jupyter.Message{
			{Header: jupyter.Header{MsgType: firstType}, Content: first, Metadata: second, Cut: max(0, cut)},
			{Header: jupyter.Header{MsgType: secondType}, Content: second, Metadata: first},
		} {
			receive(r, m)
		}
		r.flush(time.Now())
		record.Finish(contract.StatusSucceeded, "", 0)
		got, err := j.Read(t.Context(), record.ID, journal.ReadRequest{MaxBytes: contract.MaxReadBytes})
		if err != nil || !got.End {
			t.Fatalf("%+v, %v", got, err)
		}
		for _, ev := range got.Events {
			if line, err := json.Marshal(ev); err != nil || len(line) > contract.MaxEventBytes {
				t.Errorf("an event of %d bytes, %v", len(line), err)
			}
		}
	})
}

// receive does with a message what the runner does.
func receive(r *run, m *jupyter.Message) {
	switch m.Header.MsgType {
	case jupyter.MsgExecuteReply:
		var reply jupyter.ExecuteReply
		if m.Cut > 0 {
			reply = hugeReply(m)
		} else if m.Decode(&reply) != nil {
			return
		}
		r.page(&reply)
		r.result(&reply)
	case jupyter.MsgInputRequest:
		r.requestInput(m, time.Now())
	default:
		r.accept(m)
		r.status(m)
		r.output(m, time.Now())
	}
}
