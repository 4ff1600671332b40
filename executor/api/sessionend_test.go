package api

import (
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

// While the executor shuts down, every answer about an execution says so, including that of
// a wait that the shutdown has ended.
func TestExecutionsReportThatTheSessionEnds(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	s := newLiveStand(t, stacks.Old(t))
	ending := make(chan struct{})
	s.api.Ending = ending
	left := s.api.Prober.SessionMinutesLeft()
	e := s.submit("x = input()", 20)
	if (e.SessionMinutesLeft == nil) != (left == nil) || left != nil && *e.SessionMinutesLeft > *left {
		t.Errorf("before the end %v, the probe says %v", e.SessionMinutesLeft, left)
	}
	close(ending)
	path := contract.PathExecutions + "/" + e.ExecutionID
	for name, res := range map[string]reply{
		"read":      s.call("GET", path, nil),
		"input":     s.call("POST", path+"/input", contract.Input{Text: "1"}),
		"submit":    s.call("POST", contract.PathExecutions, contract.Submit{RequestID: "last", Code: "while True: pass"}),
		"interrupt": s.call("POST", contract.PathExecutions+"/"+s.submit("1", 0).ExecutionID+"/interrupt", nil),
	} {
		if e := into[contract.Execution](s, res); e.SessionMinutesLeft == nil || *e.SessionMinutesLeft != 0 {
			t.Errorf("%s reports %v", name, e.SessionMinutesLeft)
		}
	}
}
