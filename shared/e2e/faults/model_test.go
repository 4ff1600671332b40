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
