package main

import (
	"errors"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
)

func TestTheModelRefusesWhatDidNotHappen(t *testing.T) {
	for name, c := range map[string]struct {
		reported contract.Status
		ran      int
		refused  bool
	}{
		"ran once":              {contract.StatusSucceeded, 1, false},
		"ran twice":             {contract.StatusSucceeded, 2, true},
		"succeeded, never ran":  {contract.StatusSucceeded, 0, true},
		"cancelled, never ran":  {contract.StatusCancelled, 0, false},
		"cancelled, ran":        {contract.StatusCancelled, 1, true},
		"lost, ran":             {contract.StatusLost, 1, false},
		"without answer, twice": {"", 2, true},
	} {
		x := &submission{id: "x", reported: c.reported}
		if err := x.checkCount(c.ran); (err != nil) != c.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTheModelRefusesEventsThatAreMissingDoubledOrChanged(t *testing.T) {
	line := func(offset int64, text string) contract.Event {
		return contract.Event{Offset: offset, Type: contract.EventStream, Name: contract.Stdout, Text: text}
	}
	for name, c := range map[string]struct {
		status  contract.Status
		events  []contract.Event
		refused bool
	}{
		"all":              {contract.StatusSucceeded, []contract.Event{line(0, "a\n"), line(1, "b\n")}, false},
		"the beginning":    {contract.StatusKernelDied, []contract.Event{line(0, "a\n")}, false},
		"the end missing":  {contract.StatusSucceeded, []contract.Event{line(0, "a\n")}, true},
		"one missing":      {contract.StatusSucceeded, []contract.Event{line(0, "a\n"), line(2, "b\n")}, true},
		"one doubled":      {contract.StatusSucceeded, []contract.Event{line(0, "a\n"), line(0, "b\n")}, true},
		"other text":       {contract.StatusKernelDied, []contract.Event{line(0, "x\n")}, true},
		"a gap":            {contract.StatusSucceeded, []contract.Event{{Type: contract.EventGap, Bytes: 4}}, true},
		"in another order": {contract.StatusSucceeded, []contract.Event{line(1, "b\n"), line(0, "a\n")}, true},
	} {
		x := &submission{id: "x", output: "a\nb\n"}
		got := contract.Execution{Status: c.status, Events: c.events, NextOffset: int64(len(c.events))}
		if err := x.checkEvents(got); (err != nil) != c.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTheModelRefusesRunsThatAreNotListed(t *testing.T) {
	for name, c := range map[string]struct {
		reported    contract.Status
		ran, listed int
		excuses     excuses
		refused     bool
	}{
		"listed":                   {contract.StatusSucceeded, 1, 1, 0, false},
		"listed twice":             {contract.StatusSucceeded, 1, 2, always, true},
		"without answer":           {"", 0, 0, 0, false},
		"answered":                 {contract.StatusQueued, 0, 0, executorEnds, true},
		"without answer, ran":      {"", 1, 0, networkFails | executorEnds | relayEnds, true},
		"on a VM that is replaced": {contract.StatusSucceeded, 1, 0, vmReplaced, false},
	} {
		x := &submission{id: "x", reported: c.reported}
		if err := x.checkListed(c.ran, c.listed, c.excuses); (err != nil) != c.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestACodeIsExcusedOnlyForItsTools(t *testing.T) {
	for _, c := range []struct {
		tool, code string
		step       excuses
		want       bool
	}{
		{"inspect_variable", "kernel_busy", 0, true}, {"run_code_long", "kernel_busy", always, false},
		{"provide_input", "replayed", networkFails, true}, {"provide_input", "replayed", kernelEnds, false},
		{"run_notebook", "replayed", always, false}, {"run_notebook", "timeout", 0, true}, {"run_notebook", "other", always, false},
		{"run_code_quick", "timeout", kernelEnds, false}, {"list_executions", "timeout", kernelStops, true},
		{"run_notebook", "disk_full", vmDiskFull, true}, {"run_code_long", "disk_full", vmDiskFull, false},
	} {
		if got := c.step.excused(c.tool, c.code); got != c.want {
			t.Errorf("%s of %s, excuses %b: %v", c.code, c.tool, c.step, got)
		}
	}
}

func TestAFaultExcusesOnlyItsOutcomes(t *testing.T) {
	for _, c := range []struct {
		step, of excuses
		want     bool
	}{
		{0, kernelEnds, false}, {kernelEnds, kernelEnds, true}, {relayEnds, kernelEnds, false},
		{0, always, true}, {executorEnds | networkFails, networkFails, true}, {always, 0, false},
	} {
		if got := c.step.any(c.of); got != c.want {
			t.Errorf("excuses %b, outcome of %b: %v", c.step, c.of, got)
		}
	}
}

func TestTheModelRefusesIterationsThatRanTwiceUnlessAStateWasRestored(t *testing.T) {
	for name, c := range map[string]struct {
		ran, restores int
		done          int64
		refused       bool
	}{
		"once":                    {1, 0, 2, false},
		"twice":                   {2, 0, 2, true},
		"twice, one restore":      {2, 1, 2, false},
		"three times, one":        {3, 1, 2, true},
		"three times, two":        {3, 2, 2, false},
		"recorded, and never ran": {1, 1, 3, true},
	} {
		ledger := map[string]int{"iter x 1.1 0": 1, "iter x 1.1 1": c.ran, "iter x 2.2 1": 1, "iter y 1.1 0": 9}
		if err := (&chunkedRun{name: "x"}).checkRan(c.done, ledger, c.restores); (err != nil) != c.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOutputMayBeMissingOnlyWhereAGapSaysSo(t *testing.T) {
	gap := "[… 8 bytes are not in the log on the VM …]\n"
	for name, c := range map[string]struct {
		text             string
		lossy, succeeded bool
		refused          bool
	}{
		"all":                      {"a\nb\nc\n", true, true, false},
		"a gap":                    {"a\n" + gap + "c\n", true, true, false},
		"a gap within a line":      {"a\nb\n" + gap + "\n", true, true, false},
		"a gap at the end":         {"a\n" + gap, true, true, false},
		"nothing but a gap":        {gap, true, true, false},
		"a gap in another step":    {"a\n" + gap + "c\n", false, true, true},
		"a silent loss":            {"a\nc\n", true, true, true},
		"a silent end":             {"a\n", true, true, true},
		"a silent end after a gap": {"a\n" + gap + "b\n", true, true, true},
		"in another order":         {"b\n" + gap + "a\n", true, false, true},
		"twice":                    {"a\n" + gap + "a\n", true, false, true},
		"the beginning of a loss":  {"a\n", true, false, false},
	} {
		x := &submission{id: "x", output: "a\nb\nc\n", lossy: c.lossy}
		status := contract.StatusLost
		if c.succeeded {
			status = contract.StatusSucceeded
		}
		if err := x.checkText(name, status, c.text); (err != nil) != c.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAFaultOfOneLaptopExcusesNothingOnOthers(t *testing.T) {
	kind := map[string]*fault{}
	for n := range kinds {
		kind[kinds[n].name] = &kinds[n]
	}
	s := step{faults: []planned{{fault: kind["relay killed"], at: 1}, {fault: kind["laptop's disk full"], at: 2}, {fault: kind["relay stopped"], at: 2}, {fault: kind["VM's disk full"], at: 2}}}
	for laptop, want := range []excuses{vmDiskFull, vmDiskFull | relayEnds, vmDiskFull | laptopDiskFull | relayStops} {
		if got := s.excusesOn(laptop); got != want {
			t.Errorf("laptop %d has the excuses %b, want %b", laptop, got, want)
		}
	}
}

func TestAFullDiskExcusesOnlyCommandsThatNameIt(t *testing.T) {
	s := &scene{excuses: laptopDiskFull}
	for text, want := range map[string]bool{"put: the local disk is full": true, "write x: no space left on device": true, "not found": false} {
		if got := s.commandMayFail(errors.New(text), networkFails); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestARelayThatKeepsSomethingIsFound(t *testing.T) {
	began := harness.Process{Descriptors: 8, Sockets: 1, Threads: 9}
	for name, c := range map[string]struct {
		now     harness.Process
		refused bool
	}{
		"as it began":       {began, false},
		"some threads":      {harness.Process{Descriptors: 8, Sockets: 1, Threads: 9 + threadsMore}, false},
		"a file more":       {harness.Process{Descriptors: 9, Sockets: 1, Threads: 9}, true},
		"a socket more":     {harness.Process{Descriptors: 8, Sockets: 2, Threads: 9}, true},
		"a child":           {harness.Process{Descriptors: 8, Sockets: 1, Threads: 9, Children: []int{7}}, true},
		"many more threads": {harness.Process{Descriptors: 8, Sockets: 1, Threads: 10 + threadsMore}, true},
	} {
		if err := grown(began, c.now); (err != nil) != c.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOnlyFaultsExcuseStatesThatAreLeft(t *testing.T) {
	operations := []placed{{operation: &state{}}, {operation: &chunkedRun{}}, {operation: &upload{}}}
	for of, want := range map[excuses]int{0: 0, relayEnds: 0, vmDiskFull: 0, kernelEnds: 2, executorEnds: 2, networkFails: 2} {
		s := step{operations: operations, faults: []planned{{fault: &fault{excuses: of}}}}
		if got := s.mayLeaveStates(); got != want {
			t.Errorf("with the excuses %b, %d states may be left, want %d", of, got, want)
		}
	}
}
