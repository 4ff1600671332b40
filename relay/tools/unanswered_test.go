package tools

import (
	"fmt"
	"testing"
	"time"
)

func TestUnansweredSubmitsAreRememberedUpToTheBound(t *testing.T) {
	var u unanswered
	submit := func(i int) unansweredSubmit {
		return unansweredSubmit{runtime: fmt.Sprint(i), timeout: time.Second, requestID: fmt.Sprint("id-", i)}
	}
	for i := range maxUnansweredSubmits + 1 {
		u.put(submit(i))
	}
	for i, want := range map[int]string{0: "", 1: "id-1", maxUnansweredSubmits: fmt.Sprint("id-", maxUnansweredSubmits)} {
		if got := u.take(submit(i)); got != want {
			t.Errorf("submit %d has the request_id %q, want %q", i, got, want)
		}
	}
	if got := u.take(submit(1)); got != "" {
		t.Errorf("it is taken twice, as %q", got)
	}
}

// Two calls with the same code at once are two runs. So are those of other runtimes, codes and
// deadlines.
func TestUnansweredSubmitsAreNotMixedUp(t *testing.T) {
	var u unanswered
	all := []unansweredSubmit{
		{runtime: "a", requestID: "1"}, {runtime: "a", requestID: "2"}, {runtime: "b", requestID: "3"},
		{runtime: "a", code: [32]byte{1}, requestID: "4"}, {runtime: "a", timeout: 1, requestID: "5"},
	}
	for _, s := range all {
		u.put(s)
	}
	for _, s := range all {
		want := s.requestID
		s.requestID = ""
		if got := u.take(s); got != want {
			t.Errorf("%+v has %q, want %q", s, got, want)
		}
	}
}
