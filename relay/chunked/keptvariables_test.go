package chunked

import (
	"testing"
	"time"

	"colabrelay/relay/kernelstate"
)

// runOf is a run of that many seconds of iterations, whose kernel carries total.
func runOf(seconds float64, b KeepBounds) *advance {
	s := newRecord(spec("", "total += i", 1000))
	s.Done, s.KernelID, s.Timed, s.MeanSeconds = 100, "k", 100, seconds/100
	s.Carried = &CarriedVariables{Names: map[string][]string{"total": {"store"}}}
	return &advance{Run: &Run{state: s, spec: spec("", "", 1000)}, opt: Options{Until: time.Now().Add(time.Minute), Keeper: &kernelstate.Keeper{}, Keep: b}}
}

var usual = KeepBounds{Every: 30 * time.Second, Share: .05, MaxBytes: 64 << 20, RunBytes: 100 << 20}

func TestKeepingStaysWithinItsBounds(t *testing.T) {
	for name, c := range map[string]struct {
		seconds float64
		change  func(a *advance)
		want    bool
	}{
		"the first, after a second":      {1.01, nil, true},
		"sooner":                         {.99, nil, false},
		"29 s after the last":            {1000, func(a *advance) { a.state.KeepTried = time.Now().Add(-29 * time.Second) }, false},
		"31 s after the last":            {1000, func(a *advance) { a.state.KeepTried = time.Now().Add(-31 * time.Second) }, true},
		"5 % with the next":              {100, func(a *advance) { a.state.KeepSeconds, a.state.KeepCost = 3, 1.9 }, true},
		"over 5 % with the next":         {100, func(a *advance) { a.state.KeepSeconds, a.state.KeepCost = 3, 2.1 }, false},
		"100 MB through a tunnel":        {1000, func(a *advance) { a.state.KeepBytes = 100 << 20 }, false},
		"100 MB not through a tunnel":    {1000, func(a *advance) { a.state.KeepBytes = 100 << 20; a.opt.Keep.RunBytes = 0 }, true},
		"nothing may be kept":            {1000, func(a *advance) { a.opt.Keep.MaxBytes = 0 }, false},
		"nothing is carried":             {1000, func(a *advance) { a.state.Carried = &CarriedVariables{} }, false},
		"nothing is known":               {1000, func(a *advance) { a.state.Carried = nil }, false},
		"nobody needs it":                {1000, func(a *advance) { a.spec.OnNew = NewKernelContinue }, false},
		"this iteration's are kept":      {1000, func(a *advance) { a.takeKept(kernelstate.KeepResult{Version: "v", Done: 100}, nil, 1) }, false},
		"those of one before are kept":   {1000, func(a *advance) { a.takeKept(kernelstate.KeepResult{Version: "v", Done: 99}, nil, 1) }, true},
		"the call's time is nearly over": {1000, func(a *advance) { a.opt.Until = time.Now().Add(time.Second) }, false},
	} {
		a := runOf(c.seconds, usual)
		if c.change != nil {
			c.change(a)
		}
		if got := a.keepDue(); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestASizeFitsTheTimeAndTheTraffic(t *testing.T) {
	for name, c := range map[string]struct {
		seconds     float64
		kept, bytes int64
		want        bool
	}{
		"small":                    {2, 0, 100 << 10, true},
		"10 MB after 20 s":         {20, 0, 10 << 20, false},
		"10 MB after 200 s":        {200, 0, 10 << 20, true},
		"the last of 100 MB":       {10_000, 90 << 20, 10 << 20, true},
		"one byte over 100 MB":     {10_000, 90 << 20, 10<<20 + 1, false},
		"64 MB after half an hour": {1800, 0, 64 << 20, true},
	} {
		a := runOf(c.seconds, usual)
		a.state.KeepBytes = c.kept
		if got := a.fits(c.bytes); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
		if told := len(a.notes) > 0; told != (name == "one byte over 100 MB") {
			t.Errorf("%s: notes %v", name, a.told())
		}
	}
}

// Other code makes what is kept useless; so does a kernel that goes back before it.
func TestKeptVariablesBelongToTheirCodeAndIteration(t *testing.T) {
	a := runOf(100, usual)
	a.takeKept(kernelstate.KeepResult{Version: "v", Done: 60}, nil, 1)
	if s := a.state; !s.usable() {
		t.Error("not usable")
	}
	a.state.LoopSHA256 = "other"
	if a.state.usable() {
		t.Error("usable with other code")
	}
	a.state.LoopSHA256 = a.state.Kept.LoopSHA256
	a.state.Ranges = []Range{{0, 100, "k", "i"}}
	a.state.confirm(60, "k", "i")
	if !a.state.usable() {
		t.Error("not usable at its own iteration")
	}
	a.state.confirm(59, "k", "i")
	if a.state.Kept != nil {
		t.Error("still there after the kernel went back before it")
	}
}
