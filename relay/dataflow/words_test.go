package dataflow

import "testing"

func TestEachReasonHasWords(t *testing.T) {
	for _, r := range []Reason{NeverRan, Edited, LastFailed, OutOfOrder, LostSource, BelowDirty, Overwritten} {
		if r.Words() == "" {
			t.Errorf("%s has no words", r)
		}
	}
	if got := Reason("").Words(); got != "" {
		t.Errorf("a clean cell: %q", got)
	}
}
