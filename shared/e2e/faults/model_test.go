package main

import (
	"testing"

	"colabrelay/shared/contract"
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
