package tools

import (
	"testing"
)

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
