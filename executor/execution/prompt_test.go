package execution

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/stacks"
)

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
		if err := q.Input(t.Context(), id, answer); err != nil {
			t.Fatal(err)
		}
		second := openPrompt(t, q.settle(id))
		if err := q.Input(t.Context(), id, answer); err != nil { // its answer was lost
			t.Errorf("the same answer again: %v", err)
		}
		answer.InputID = "two"
		if err := q.Input(t.Context(), id, answer); !errors.Is(err, ErrOtherPrompt) {
			t.Errorf("another answer to the same prompt: %v", err)
		}
		if err := q.Input(t.Context(), id, contract.Input{Text: "B", Offset: &second.Offset}); err != nil {
			t.Fatal(err)
		}
		openPrompt(t, q.settle(id))
		last := contract.Input{Text: "C", InputID: "three"} // for whichever is open
		if err := q.Input(t.Context(), id, last); err != nil {
			t.Fatal(err)
		}
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
		if err := q.Input(t.Context(), id, contract.Input{Text: "hunter2", Offset: &prompt.Offset, Password: true}); err != nil {
			t.Fatal(err)
		}
		x := q.settle(id)
		if got := text(x, contract.Stdout); got != "7\n" || strings.Contains(got, "hunter2") {
			t.Errorf("stdout = %q", got)
		}
	})
}
