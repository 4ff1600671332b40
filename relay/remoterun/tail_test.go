package remoterun

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

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
	}
	printed := func(tail *int) string {
		var both console
		c := both.console(t)
		c.Err = c.Out // in order
		kept := Kept{Execution: contract.Execution{ExecutionID: "e", Status: contract.StatusSucceeded, Events: events}}
		if err := PrintKept(t.Context(), kept, LogOptions{Tail: tail}, c); err != nil {
			t.Fatal(err)
		}
		return both.out.String()
	}
	whole := strings.SplitAfter(strings.TrimSuffix(printed(nil), "\n"), "\n")
	if len(whole) != 18 {
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

func TestTailOfEventsAsJSON(t *testing.T) {
	events := []contract.Event{stream(0, "stdout", "a\nb\n"), stream(1, "stdout", "c\n"), {Offset: 2, Type: contract.EventClearOutput}}
	for n, want := range []int{0, 1, 2, 3, 3} {
		var c console
		kept := Kept{Execution: contract.Execution{ExecutionID: "e", Status: contract.StatusSucceeded, Events: events}}
		err := PrintKept(t.Context(), kept, LogOptions{JSON: true, Tail: &n}, c.console(t))
		if got := strings.Count(c.out.String(), "\n"); err != nil || got != want || n > 1 && !strings.Contains(c.out.String(), `"text":"c\n"`) {
			t.Errorf("%d: %v, %q", n, err, c.out.String())
		}
	}
}

// A log of many events is searched from its end, in several windows.
func TestTailReadsTheEndOfALongLog(t *testing.T) {
	tier.Long(t)
	vm := VM{Runtime: "vm", Client: newClient(t, startVM(t), nil)}
	var c console
	code := Code{Text: "for i in range(600):\n    display(i) # each is an event\nprint('end', end='')", Timeout: time.Minute}
	if err := Run(t.Context(), vm, code, c.console(t)); err != nil {
		t.Fatal(err)
	}
	run, err := FindNewest(t.Context(), vm, func(string) bool { return false })
	if err != nil || run.NextOffset < 600 {
		t.Fatalf("%v, %d events", err, run.NextOffset)
	}
	unlisted, err := vm.Client.Execution(t.Context(), run.ExecutionID, 0, 0, 1)
	if err != nil || len(unlisted.Events) == 0 || unlisted.NextOffset == run.NextOffset {
		t.Fatal(err, unlisted.NextOffset)
	}
	for _, n := range []int{0, 1, 2, 100, 601, 5000} {
		for _, found := range []contract.Execution{run, unlisted} {
			var want strings.Builder
			for i := max(0, 601-n); i < 600; i++ {
				fmt.Fprintln(&want, i)
			}
			if n > 0 {
				want.WriteString("end")
			}
			var c console
			if err := Logs(t.Context(), vm, found, LogOptions{Tail: &n, Follow: n == 2}, c.console(t)); err != nil || c.out.String() != want.String() {
				t.Errorf("%d: %v, %.200q, want %.200q", n, err, c.out.String(), want.String())
			}
		}
	}
}

func TestTailGoesOnWithWhatIsNew(t *testing.T) {
	vm := VM{Runtime: "vm", Client: newClient(t, startVM(t), nil)}
	proceed := filepath.Join(t.TempDir(), "go")
	e, err := Start(t.Context(), vm, Code{Text: fmt.Sprintf("import os, time\nprint('a\\nb', flush=True)\nwhile not os.path.exists(%q): time.sleep(0.01)\nprint('c')", proceed), Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	within.Until(t, "it is printed", func() bool {
		e, err = FindOnVM(t.Context(), vm, e.ExecutionID)
		return err == nil && e.NextOffset > 0
	})
	var c console
	ended, one := make(chan error), 1
	go func() { ended <- Logs(t.Context(), vm, e, LogOptions{Follow: true, Tail: &one}, c.console(t)) }()
	within.Until(t, "it is printed", func() bool { return c.out.String() == "b\n" })
	if err := os.WriteFile(proceed, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil || c.out.String() != "b\nc\n" {
		t.Errorf("%v, %q", err, c.out.String())
	}
}
