package chunked

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/stacks"
)

// counted returns an interceptor that collects the markers of finished iterations.
func counted(vm VM) (*interceptor, *[]marker) {
	var seen []marker
	return &interceptor{VM: vm, events: func(events []contract.Event) []contract.Event {
		for _, ev := range events {
			if m, ok := readMarker(ev, &Record{Key: keyOf(ev)}); ok && m.Event == eventDone {
				seen = append(seen, m)
			}
		}
		return events
	}}, &seen
}

// keyOf returns the key of the run in an event.
func keyOf(ev contract.Event) string {
	_, text, _ := strings.Cut(string(ev.Data[markerMIME]), `"run":"`)
	if text == "" {
		_, text, _ = strings.Cut(string(ev.Data[markerMIME]), `"run": "`)
	}
	key, _, _ := strings.Cut(text, `"`)
	return key
}

// With one message for each of them, the kernel's socket would drop some.
func TestFastIterationsShareMarkersAndNoValueIsLost(t *testing.T) {
	eachStack(t, func(t *testing.T, m *machine, dir string) {
		vm, markers := counted(m)
		s := spec("", "result = i", 20_000)
		s.BatchSize = s.N
		a := finish(t, dir, s, vm)
		if len(a.Results) != 20_000 || len(a.Notes) != 0 || a.Timed != s.N {
			t.Fatalf("%d values, %d timed, notes %q", len(a.Results), a.Timed, a.Notes)
		}
		for i, v := range a.Results {
			if v.Iteration != int64(i) || string(v.Value) != fmt.Sprint(i) {
				t.Fatalf("value %d is %s of %d", i, v.Value, v.Iteration)
			}
		}
		if n := len(*markers); n < 30 || n > 2000 {
			t.Errorf("%d markers", n)
		}
		// Large values fill a marker before its time is over: it must fit into an event.
		for value, n := range map[string]int64{"'x' * 20_000": 20, "'\"' * 40": 4000, "[1] * 25_000": 30, "object()": 4000} {
			*markers = nil
			s = spec("", "result = "+value, n)
			s.Name, s.BatchSize = "large", n
			s.OnChange = Restart
			if a := finish(t, dir, s, vm); int64(len(a.Results)) != n || len(a.Notes) != 0 || len(*markers) < 4 {
				t.Errorf("%s: %d values in %d markers, notes %q", value, len(a.Results), len(*markers), a.Notes)
			}
		}
	})
}

func TestEachSlowIterationHasItsOwnMarker(t *testing.T) {
	t.Parallel()
	m, dir := borrow(t, stacks.Old(t)), t.TempDir()
	vm, markers := counted(m)
	s := spec("import time", "time.sleep(.006)", 60)
	s.BatchSize = 60
	if finish(t, dir, s, vm); len(*markers) != 60 {
		t.Errorf("%d markers", len(*markers))
	}
}

func TestFastIterationsBeforeAFailureAreReported(t *testing.T) {
	eachStack(t, func(t *testing.T, m *machine, dir string) {
		s := spec("", "assert i != 437\nresult = i", 500)
		s.BatchSize = 400
		a := call(t, dir, s, m, long)
		a.checkStop(t, stop{Status: "failed", EName: "AssertionError", Done: 437, Values: 437, Iteration: 437})
		if len(a.Notes) != 0 {
			t.Errorf("notes %q", a.Notes)
		}
	})
}

// The iterations that the dead kernel did not report run again in the next one.
func TestDeadKernelLosesOnlyUnreportedIterations(t *testing.T) {
	t.Parallel()
	m, dir := borrow(t, stacks.Old(t)), t.TempDir()
	loop := "import os, time\nopen('numbers', 'a').write(f'{i}\\n')\nresult = i\n" +
		"if i == 5000 and not os.path.exists('died'):\n    open('died', 'w').close()\n    time.sleep(.3)\n    os.kill(os.getpid(), 9)"
	s := spec("", loop, 6000)
	s.BatchSize = 6000
	a := call(t, dir, s, m, long)
	if a.Stop == nil || a.Stop.Execution.Status != contract.StatusKernelDied || a.Done > 5000 || a.Done < 1000 {
		t.Fatalf("%d done, %v, %s", a.Done, a.err, a.why())
	}
	done := int(a.Done)
	a = finish(t, dir, s, m)
	same(t, "numbers", numbers(t, m, "numbers"), append(upTo(5001), upTo(6000)[done:]...))
	if len(a.Results) != 6000 {
		t.Errorf("%d values", len(a.Results))
	}
}

func TestDoneGrowsDuringALongBatchOfFastIterations(t *testing.T) {
	t.Parallel()
	m, dir := start(t, stacks.Old(t), t.TempDir()), t.TempDir() // its batch still runs when the test ends
	s := spec("", "pass", 100_000_000)
	s.BatchSize = s.N
	last := int64(0)
	for n := range 3 {
		a := call(t, dir, s, m, 700*time.Millisecond)
		if a.err != nil || a.Stop != nil || a.Done <= last {
			t.Fatalf("call %d: %d done after %d, %v, %s", n, a.Done, last, a.err, a.why())
		}
		last = a.Done
	}
	if last < 20_000 {
		t.Errorf("%d iterations in 2 s", last)
	}
}

func TestNotesOfOneKindAreCounted(t *testing.T) {
	t.Parallel()
	m, dir := borrow(t, stacks.Old(t)), t.TempDir()
	odd := 0
	vm := &interceptor{VM: m, events: func(events []contract.Event) []contract.Event {
		for i, ev := range events {
			if odd++; IsMarker(ev) && odd%2 == 0 {
				events[i] = contract.Event{Offset: ev.Offset, Type: contract.EventGap, Events: 1}
			}
		}
		return events
	}}
	s := spec("", "result = i", 60)
	s.BatchSize = 1
	a := call(t, dir, s, vm, long)
	if a.err != nil && !errors.Is(a.err, errNoMarkers) {
		t.Fatal(a.err)
	}
	if text := strings.Join(a.Notes, "\n"); len(a.Notes) == 0 || len(a.Notes) > 4 || !strings.Contains(text, "more of this kind") {
		t.Errorf("notes:\n%s", text)
	}
}
