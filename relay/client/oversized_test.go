package client

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/contract"
)

// longEvents answers reads of an execution whose events have these sizes, as an
// executor does: whole events until max_bytes are passed, one at the least.
func longEvents(sizes []int) func(seen) (int, any) {
	return func(s seen) (int, any) {
		x := contract.Execution{ExecutionID: "e1", RequestID: "r1", Status: contract.StatusSucceeded}
		if s.path == contract.PathKernel {
			return http.StatusOK, contract.Kernel{}
		}
		if s.path == contract.PathExecutions && s.method == http.MethodGet {
			return http.StatusOK, contract.ExecutionList{Executions: []contract.Execution{x}}
		}
		query, _ := url.ParseQuery(s.query)
		offset, _ := strconv.Atoi(query.Get("offset"))
		most, err := strconv.Atoi(query.Get("max_bytes"))
		if err != nil {
			most = contract.DefaultReadBytes
		}
		if offset > len(sizes) {
			return http.StatusBadRequest, refusalBody(contract.CodeBadRequest)
		}
		for ; most > 0 && offset < len(sizes); offset++ {
			x.Events = append(x.Events, contract.Event{Offset: int64(offset), Type: contract.EventStream, Name: contract.Stdout, Text: strings.Repeat("x", sizes[offset])})
			most -= sizes[offset]
		}
		x.NextOffset, x.End = int64(offset), offset == len(sizes)
		return http.StatusOK, x
	}
}

// smallAnswer bounds answers in these tests: the real bound would have them write,
// compress and sign gigabytes.
const smallAnswer = 512 << 10

func smallClient(t *testing.T, e *executor) *Client {
	t.Helper()
	c := e.client(t)
	c.maxAnswer = smallAnswer
	return c
}

func TestEventsThatAreTooLongAreSteppedPast(t *testing.T) {
	const long = smallAnswer + 1
	for name, c := range map[string]struct {
		sizes []int
		gaps  int
	}{
		"several in a row":     {[]int{10, long, long, long, 10}, 3},
		"small ones before it": {append(slicesOf(100, 1000), long, 5), 1},
	} {
		t.Run(name, func(t *testing.T) {
			client := smallClient(t, newExecutor(t, longEvents(c.sizes)))
			next, gaps := int64(0), 0
			for end := false; !end; {
				e, err := client.Execution(t.Context(), "e1", next, 0, contract.MaxReadBytes)
				if err != nil {
					t.Fatal(err)
				}
				for _, ev := range e.Events {
					if ev.Offset != next {
						t.Fatalf("event of offset %d where %d belongs", ev.Offset, next)
					}
					next += max(1, ev.Events)
					if ev.Type == contract.EventGap {
						gaps++
						if c.sizes[ev.Offset] != long || ev.Cut == "" {
							t.Errorf("gap %+v", ev)
						}
					}
				}
				end = e.End
			}
			if gaps != c.gaps || next != int64(len(c.sizes)) {
				t.Errorf("%d gaps, read to %d", gaps, next)
			}
		})
	}
}

func slicesOf(n, value int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = value
	}
	return s
}

// The answer to a submit is read as an execution when it is too long: its code ran.
func TestSubmitWithAnAnswerTooLongFindsItsRun(t *testing.T) {
	executor := newExecutor(t, longEvents([]int{smallAnswer + 1, 4}))
	e, err := smallClient(t, executor).Submit(t.Context(), contract.Submit{RequestID: "r1", Code: "1", WaitSeconds: time.Second.Seconds()})
	if err != nil || e.ExecutionID != "e1" || len(e.Events) != 2 || e.Events[0].Type != contract.EventGap || e.Events[1].Text != "xxxx" {
		t.Errorf("%+v, %v", e.Events, err)
	}
	if n := len(executor.submits(t)); n != 1 {
		t.Errorf("it was submitted %d times", n)
	}
}

func TestSubmitWhoseRunIsNotFoundNeverSaysThatItDidNotRun(t *testing.T) {
	executor := newExecutor(t, longEvents([]int{smallAnswer + 1}))
	_, err := smallClient(t, executor).Submit(t.Context(), contract.Submit{RequestID: "other", Code: "1"})
	if e := wantKind(t, err, KindBadAnswer); !strings.Contains(e.Hint, "Do not run the code again") || !strings.Contains(e.Hint, "other") {
		t.Errorf("%s; %s", e.Message, e.Hint)
	}
}
