package remoterun

import (
	"encoding/json"
	"strings"
	"testing"

	"colabrelay/shared/contract"
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
