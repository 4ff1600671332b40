package chunked

import (
	"testing"
	"time"

	"colabrelay/relay/kernelstate"
)

// runOf returns a run after so many seconds of iterations, which pass on total.
func runOf(seconds float64, b KeepBounds) *runner {
	s := newRecord(spec("", "total += i", 1000))
	s.Done, s.KernelID, s.Timed, s.MeanSeconds = 100, "k", 100, seconds/100
	s.Carried = &CarriedVariables{Names: map[string][]string{"total": {"store"}}}
	return &runner{Run: &Run{record: s, spec: spec("", "", 1000)}, opt: Options{Until: time.Now().Add(time.Minute), Keeper: &kernelstate.Keeper{}, Keep: b}}
}

var usual = KeepBounds{Every: 30 * time.Second, Share: .05, MaxBytes: 64 << 20, RunBytes: 100 << 20}

func TestKeepingStaysWithinItsBounds(t *testing.T) {
	for name, c := range map[string]struct {
		seconds float64
		change  func(a *runner)
		want    bool
	}{
		"the first, after a second":             {1.01, nil, true},
		"the first, sooner":                     {.99, nil, false},
		"29 s after the last":                   {1000, func(a *runner) { a.record.KeepTried = time.Now().Add(-29 * time.Second) }, false},
		"31 s after the last":                   {1000, func(a *runner) { a.record.KeepTried = time.Now().Add(-31 * time.Second) }, true},
		"5 % with the next":                     {100, func(a *runner) { a.record.KeepSeconds, a.record.KeepCost = 3, 1.9 }, true},
		"over 5 % with the next":                {100, func(a *runner) { a.record.KeepSeconds, a.record.KeepCost = 3, 2.1 }, false},
		"100 MB through a tunnel":               {1000, func(a *runner) { a.record.KeepBytes = 100 << 20 }, false},
		"100 MB not through a tunnel":           {1000, func(a *runner) { a.record.KeepBytes = 100 << 20; a.opt.Keep.RunBytes = 0 }, true},
		"nothing may be kept":                   {1000, func(a *runner) { a.opt.Keep.MaxBytes = 0 }, false},
		"nothing is passed on":                  {1000, func(a *runner) { a.record.Carried = &CarriedVariables{} }, false},
		"not analysed yet":                      {1000, func(a *runner) { a.record.Carried = nil }, false},
		"on_new_kernel is continue":             {1000, func(a *runner) { a.spec.OnNewKernel = NewKernelContinue }, false},
		"a copy of this iteration exists":       {1000, func(a *runner) { a.recordCopy(kernelstate.KeepResult{Version: "v", Done: 100}, nil, 1) }, false},
		"a copy of an earlier iteration exists": {1000, func(a *runner) { a.recordCopy(kernelstate.KeepResult{Version: "v", Done: 99}, nil, 1) }, true},
		"the call's time is nearly over":        {1000, func(a *runner) { a.opt.Until = time.Now().Add(time.Second) }, false},
	} {
		a := runOf(c.seconds, usual)
		if c.change != nil {
			c.change(a)
		}
		if got := a.isCopyDue(); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestDownloadMustFitTheTimeAndTheTraffic(t *testing.T) {
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
		a.record.KeepBytes = c.kept
		if got := a.allowsDownload(c.bytes); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
		if noted := len(a.notes) > 0; noted != (name == "one byte over 100 MB") {
			t.Errorf("%s: notes %v", name, a.noteTexts())
		}
	}
}

// A copy is not usable with other code, or in a kernel that went back before its iteration.
func TestKeptVariablesBelongToTheirCodeAndIteration(t *testing.T) {
	a := runOf(100, usual)
	a.recordCopy(kernelstate.KeepResult{Version: "v", Done: 60}, nil, 1)
	if s := a.record; !s.hasUsableCopy() {
		t.Error("not usable")
	}
	a.record.LoopSHA256 = "other"
	if a.record.hasUsableCopy() {
		t.Error("usable with other code")
	}
	a.record.LoopSHA256 = a.record.Kept.LoopSHA256
	a.record.Ranges = []Range{{0, 100, "k", "i"}}
	a.record.confirm(60, "k", "i")
	if !a.record.hasUsableCopy() {
		t.Error("not usable at its own iteration")
	}
	a.record.confirm(59, "k", "i")
	if a.record.Kept != nil {
		t.Error("still kept after the kernel went back before it")
	}
}
