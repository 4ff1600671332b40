package journal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
)

// various returns the nth of many different events: texts that JSON escapes, payloads with
// characters that some encoders escape and others do not, gaps of several offsets. Texts are
// valid UTF-8, because they were decoded from JSON.
func various(n int) contract.Event {
	at := time.Unix(1_800_000_000, int64(n)).UTC()
	switch n % 5 {
	case 0:
		return contract.Event{Time: at, Type: contract.EventStream, Name: contract.Stdout, Text: fmt.Sprintf("line %d <&>\u2028\x00\ufffd\"\n", n)}
	case 1:
		return contract.Event{Time: at, Type: contract.EventGap, Bytes: int64(n), Events: int64(1 + n%7)}
	case 2:
		return contract.Event{Time: at, Type: contract.EventExecuteResult, ExecutionCount: n, Data: map[string]json.RawMessage{
			"text/plain": json.RawMessage(`"<2> & \u003c"`), "text/html": json.RawMessage("\"\u2028<b>\xff\""), "application/json": json.RawMessage(`{ "a": [1,  2.50] }`),
		}}
	case 3:
		return contract.Event{Time: at, Type: contract.EventError, EName: "E", EValue: "v\x7f", Traceback: []string{"\x1b[31m", ""}}
	}
	return contract.Event{Time: at, Type: contract.EventDisplayData, DisplayID: "d", Metadata: json.RawMessage(`{"isolated" : true}`), Cut: "some"}
}

// answer is the part of an execution as the API encodes it.
func answer(t *testing.T, r *Record, offset, maxBytes int64) string {
	t.Helper()
	x, err := r.read(ReadRequest{Offset: offset, MaxBytes: maxBytes})
	if err != nil {
		t.Fatal(err)
	}
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(x); err != nil {
		t.Fatal(err)
	}
	return body.String()
}

// Readers can't see whether events come from memory or from disk: the answers are equal to
// the byte, from every offset, with every bound on their size, in this executor and in the
// next one.
func TestEventsInMemoryAreThoseOnDisk(t *testing.T) {
	tier.Long(t)
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	j := openIn(t, dir, Limits{})
	for round := range 5 {
		r := create(t, j, contract.Submit{RequestID: fmt.Sprint(round), Code: "1"})
		for range random.IntN(60) {
			if err := r.Append(various(random.IntN(1000))); err != nil {
				t.Fatal(err)
			}
		}
		r.Finish(contract.StatusSucceeded, "", 0)
		if r.events.recent == nil {
			t.Fatalf("seed %d: %d bytes are not in memory", seed, r.events.size())
		}
		type part struct{ offset, maxBytes int64 }
		fromMemory := map[part]string{}
		for offset := range r.events.end() + 1 {
			for _, maxBytes := range []int64{1, 200, 1 + random.Int64N(4000), contract.MaxReadBytes} {
				fromMemory[part{offset, maxBytes}] = answer(t, r, offset, maxBytes)
			}
		}
		r.CloseLog()
		next, err := openIn(t, dir, Limits{}).Find(r.ID)
		if err != nil || r.events.recent != nil || next.events.recent != nil {
			t.Fatalf("a closed log is in memory, or: %v", err)
		}
		for p, want := range fromMemory {
			for where, r := range map[string]*Record{"its file": r, "the next executor": next} {
				if got := answer(t, r, p.offset, p.maxBytes); got != want {
					t.Fatalf("seed %d, offset %d, %d bytes:\n%s has   %s\nmemory has %s", seed, p.offset, p.maxBytes, where, got, want)
				}
			}
		}
	}
}

// A log that grows over the bound leaves memory in the middle of a run, and reads on.
func TestLogOverTheBoundOfMemoryIsReadFromDisk(t *testing.T) {
	r := create(t, openIn(t, t.TempDir(), Limits{}), contract.Submit{RequestID: "r", Code: "1"})
	var all strings.Builder
	crossed := false
	for n := range 150 {
		text := strings.Repeat(fmt.Sprint(n%10), 300)
		all.WriteString(text)
		if err := r.Append(stdout(text)); err != nil {
			t.Fatal(err)
		}
		if cost := int64(n+1) * (300 + eventOverhead); r.events.recent != nil && cost > maxRecent {
			t.Fatalf("%d events are still in memory", n+1)
		}
		crossed = crossed || r.events.recent == nil
		var read strings.Builder
		x, err := r.read(ReadRequest{MaxBytes: contract.MaxReadBytes})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range x.Events {
			read.WriteString(e.Text)
		}
		if read.String() != all.String() || x.NextOffset != int64(n+1) {
			t.Fatalf("after %d events, %d bytes are read up to offset %d", n+1, read.Len(), x.NextOffset)
		}
	}
	if !crossed {
		t.Error("the log never left memory")
	}
}

func TestOutputOfFinishedAndOfLongRunsIsNotInMemory(t *testing.T) {
	tier.Long(t)
	const runs, events = 2000, 10_000
	j := openIn(t, t.TempDir(), Limits{})
	before := heap()
	for n := range runs {
		r := create(t, j, contract.Submit{RequestID: fmt.Sprint(n), Code: "pass"})
		for range 10 {
			if err := r.Append(stdout(strings.Repeat("x", 500))); err != nil {
				t.Fatal(err)
			}
		}
		r.Finish(contract.StatusSucceeded, "", 0)
		r.CloseLog()
	}
	if grown := heap() - before; grown > runs*5_000 {
		t.Errorf("%d finished executions take %d KiB", runs, grown>>10)
	}
	before = heap()
	long := create(t, j, contract.Submit{RequestID: "long", Code: "pass"})
	for range events {
		if err := long.Append(stdout(strings.Repeat("x", 1000))); err != nil {
			t.Fatal(err)
		}
	}
	if grown := heap() - before; grown > 1<<20 {
		t.Errorf("%d events of one execution take %d KiB", events, grown>>10)
	}
	runtime.KeepAlive(j)
}

// A reader that waits for the end is not woken by what precedes it.
func TestReaderOfTheEndSleepsThroughEvents(t *testing.T) {
	r := create(t, openIn(t, t.TempDir(), Limits{}), contract.Submit{RequestID: "r", Code: "1"})
	end, any := r.changes(true), r.changes(false)
	woken := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	if err := r.Append(stdout("x")); err != nil {
		t.Fatal(err)
	}
	if woken(end) || !woken(any) {
		t.Errorf("an event wakes the reader of the end: %v, a reader of events: %v", woken(end), woken(any))
	}
	for _, status := range []contract.Status{contract.StatusWaitingForInput, contract.StatusSucceeded} {
		end := r.changes(true)
		if err := r.Update(func(x *contract.Execution) { x.Status = status }); err != nil || !woken(end) {
			t.Errorf("%s: %v, wakes its reader: %v", status, err, woken(end))
		}
	}
}
