package client

import (
	"net/http"
	"strings"
	"testing"

	"colabrelay/shared/contract"
)

// What is too long is not read, and nothing says that the code did not run.
func TestAnAnswerThatIsTooLongSaysWhereToReadOn(t *testing.T) {
	executor := newExecutor(t, func(s seen) (int, any) {
		if s.path == contract.PathKernel {
			return http.StatusOK, contract.Kernel{}
		}
		long := contract.Event{Type: contract.EventStream, Name: contract.Stdout, Text: strings.Repeat("x", 1<<20)}
		return http.StatusOK, contract.Execution{ExecutionID: "e1", RequestID: "r1", Status: contract.StatusSucceeded, Events: []contract.Event{long}}
	})
	c := executor.client(t)
	c.maxAnswer = 512 << 10
	_, err := c.Submit(t.Context(), contract.Submit{RequestID: "r1", Code: "1"})
	if e := wantKind(t, err, KindBadAnswer); !strings.Contains(e.Hint, "Do not run the code again") || !strings.Contains(e.Hint, "r1") || !MayRun(err) {
		t.Errorf("%s; %s", e.Message, e.Hint)
	}
	if n := len(executor.submits(t)); n != 1 {
		t.Errorf("it was submitted %d times", n)
	}
	_, err = c.Execution(t.Context(), "e1", 7, 0, contract.MaxReadBytes)
	if e := wantKind(t, err, KindBadAnswer); !strings.Contains(e.Hint, "from offset 8") {
		t.Errorf("%s; %s", e.Message, e.Hint)
	}
}
