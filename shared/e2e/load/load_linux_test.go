package main

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/tier"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A sample of make load: all its checks, with few relays. None is refused, because they are too
// few for any limit.
func TestACrowdOfRelaysLeavesNothingBehind(t *testing.T) {
	tier.Long(t)
	var out harness.Output
	err := crowd(t.Context(), options{relays: 2, rounds: 1, seed: 1}, &out)
	t.Logf("\n%s", &out)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "0 queue_full, 0 rate_limited") {
		t.Error("calls were refused")
	}
}
