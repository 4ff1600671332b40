package main

import (
	"context"
	"os"
	"reflect"
	"testing"
	"time"

	"go.uber.org/goleak"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/smalldisk"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

// The programs keep their promises through the first steps of a plan. make soak takes more
// steps, of other plans.
func TestTheProgramsKeepTheirPromisesThroughASampleOfFaults(t *testing.T) {
	tier.Long(t)
	if smalldisk.Run(t, 1) == "" { // so that the suite may mount disks
		return
	}
	t.Setenv(isolated, "1")
	sample(t, options{seed: 251, steps: 6, laptops: 3})
}

// A sample of make load: all its checks, with few relays, of which none may be refused.
func TestACrowdOfRelaysLeavesNothingBehind(t *testing.T) {
	tier.Long(t)
	sample(t, options{seed: 1, steps: 3, laptops: 2, crowd: true})
}

func sample(t *testing.T, o options) {
	t.Helper()
	defer goleak.VerifyNone(t)
	o.time, o.python = time.Hour, stacks.Old(t).Python
	dir, err := os.MkdirTemp("", "faults-")
	if err != nil {
		t.Fatal(err)
	}
	if o.binary, err = harness.Build(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
	defer cancel()
	if err := newSuite(o, dir, t.Output()).run(ctx); err != nil {
		t.Fatalf("%v\nThe folders of both sides are in %s", err, dir)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Error(err)
	}
}

func TestAPlanFollowsFromItsSeed(t *testing.T) {
	lines := map[string]bool{}
	for number := range 100 {
		p, again := plan(7, number, 3), plan(7, number, 3)
		if !reflect.DeepEqual(p, again) {
			t.Errorf("the same seed gives %s, then %s", p, again)
		}
		lines[p.String()], lines[plan(8, number, 3).String()] = true, true
	}
	if len(lines) != 200 {
		t.Errorf("200 steps of two seeds have %d different plans", len(lines))
	}
}

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
