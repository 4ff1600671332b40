package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
)

// The texts of an execution in a list and in a tombstone, at their bounds and one past them.
func TestTextsOfErrorsAreShortened(t *testing.T) {
	j := openIn(t, t.TempDir(), Limits{})
	for over := range 2 {
		cut := over == 1
		listed, buried := strings.Repeat("e", maxListedError+over), strings.Repeat("e", maxTombstoneText+over)
		x := brief(contract.Execution{Reason: listed, Error: &contract.ExecutionError{EValue: listed}})
		if (x.Reason != listed) != cut || (x.Error.EValue != listed) != cut || len(x.Reason) > maxListedError || len(x.Error.EValue) > maxListedError {
			t.Errorf("%d past the bound, a list has %d and %d bytes", over, len(x.Reason), len(x.Error.EValue))
		}
		r := create(t, j, contract.Submit{RequestID: strings.Repeat("r", 1+over), Code: "1"})
		must(t, r.Update(func(x *contract.Execution) {
			x.Reason, x.Error = buried, &contract.ExecutionError{EName: buried, EValue: buried}
		}))
		s := tombstoneOf(r)
		for _, text := range []string{s.Reason, s.EName, s.EValue} {
			if (text != buried) != cut || len(text) > maxTombstoneText {
				t.Errorf("%d past the bound, a tombstone has a text of %d bytes", over, len(text))
			}
		}
	}
}

// A tombstone with the longest texts, each byte of which JSON escapes to six, fits into the
// longest line that is read again. A longer line is no tombstone, and hides none after it.
func TestALineOfATombstoneIsBounded(t *testing.T) {
	s := numbered(1)
	s.RequestID = strings.Repeat("r", contract.MaxRequestIDLen)
	s.Reason, s.EName, s.EValue = strings.Repeat("<", maxTombstoneText), strings.Repeat("<", maxTombstoneText), strings.Repeat("<", maxTombstoneText)
	line, err := json.Marshal(s)
	if err != nil || len(line)+1 > maxTombstone {
		t.Fatalf("a line has %d bytes, %v", len(line), err)
	}
	for over := range 2 {
		dir := t.TempDir()
		padded := s
		padded.Reason = strings.Repeat("x", maxTombstone-1-(len(line)-6*maxTombstoneText)+over)
		stones := tombstonesIn(t, dir, 100)
		must(t, stones.add(padded))
		must(t, stones.add(numbered(2)))
		stones.close()
		again := tombstonesIn(t, dir, 100)
		if _, ok := again.byID(s.ID); ok != (over == 0) {
			t.Errorf("%d past the bound: the line is read: %v", over, ok)
		}
		if _, ok := again.byID(numbered(2).ID); !ok {
			t.Errorf("%d past the bound: the next tombstone is lost", over)
		}
	}
}

func TestAFileOfTombstonesIsBounded(t *testing.T) {
	for over := range 2 {
		stones := tombstonesIn(t, t.TempDir(), 100)
		addNumbered(t, stones, 0, 1)
		line, err := json.Marshal(numbered(1))
		must(t, err)
		stones.newer.size = maxTombstoneFile - int64(len(line)) - 1 + int64(over)
		addNumbered(t, stones, 1, 2)
		if rotated := stones.newer.count == 1; rotated != (over == 1) {
			t.Errorf("%d past the bound: a new file was begun: %v", over, rotated)
		}
	}
}

// While a disk is full, events wait in memory up to a bound for each execution and for all.
func TestEventsInMemoryAreBounded(t *testing.T) {
	r := new(reserve)
	log := &eventLog{dir: t.TempDir(), reserve: r}
	must(t, log.writeToMemoryLocked(make([]byte, maxUnwritten)))
	if err := log.writeToMemoryLocked(make([]byte, 1)); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a byte past the bound of an execution: %v", err)
	}
	if !r.allocateMemory(maxUnwrittenTotal - maxUnwritten) {
		t.Error("at the bound of all executions there is no memory")
	}
	if r.allocateMemory(1) {
		t.Error("a byte past the bound of all executions gets memory")
	}
	r.releaseMemory(1)
	if !r.allocateMemory(1) {
		t.Error("what was given back is lost")
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// An event of the largest size is kept, and one that is a byte longer becomes a gap.
func TestAnEventAtItsBoundIsKept(t *testing.T) {
	j := openIn(t, t.TempDir(), Limits{})
	one := stdout("x")
	line, err := marshalLine(&one) // with its line break
	must(t, err)
	for over, want := range []contract.EventType{contract.EventStream, contract.EventGap} {
		r := create(t, j, contract.Submit{RequestID: strings.Repeat("e", 1+over), Code: "1"})
		must(t, r.Append(stdout(strings.Repeat("x", contract.MaxEventBytes-len(line)+1+over))))
		if x := read(t, j, r.ID); len(x.Events) != 1 || x.Events[0].Type != want {
			t.Errorf("%d past the bound: %d events, the first one %s", over, len(x.Events), x.Events[0].Type)
		}
	}
}

func TestThePreviewOfCodeIsBounded(t *testing.T) {
	for over := range 2 {
		code := strings.Repeat("é", contract.CodePreviewRunes+over)
		if got := preview(code + "\nmore"); len([]rune(got)) != contract.CodePreviewRunes || (got == code) != (over == 0) {
			t.Errorf("%d past the bound: %d characters", over, len([]rune(got)))
		}
	}
}

// The journal keeps the previews of thousands of executions.
func TestAnExecutionDoesNotKeepItsCode(t *testing.T) {
	tier.Long(t)
	const size, n = 1 << 20, 32
	j := openIn(t, t.TempDir(), Limits{})
	records := make([]*Record, n)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range records {
		records[i] = create(t, j, contract.Submit{RequestID: fmt.Sprint("request-", i), Code: "x = 1\n" + strings.Repeat("#", size)})
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if kept := int64(after.HeapAlloc) - int64(before.HeapAlloc); kept > n*size/2 {
		t.Errorf("%d bytes are kept of %d", kept, n*size)
	}
	runtime.KeepAlive(records)
}

// An event whose offset no execution reaches is damage, and no sum of offsets overflows.
func TestOffsetsOfEventsAreBounded(t *testing.T) {
	s := newSegment(t.TempDir(), 0, 0)
	for over, want := range []bool{true, false} {
		if got := s.follows(maxOffset-1+int64(over), 1); got != want {
			t.Errorf("the offset %d: %v", maxOffset-1+over, got)
		}
		if got := s.follows(0, maxOffset-1+int64(over)); got != want {
			t.Errorf("a gap of %d events: %v", maxOffset-1+over, got)
		}
	}
}

// A line over the bound is not read into memory, and hides none after it.
func TestALineOfALogIsBounded(t *testing.T) {
	for over := range 2 {
		s := newSegment(t.TempDir(), 0, 0)
		long := strings.Repeat("x", maxLine-1+over) + "\n"
		must(t, os.WriteFile(s.path, []byte(long+"next\n"), 0o600))
		s.size = int64(len(long) + 5)
		var lines []string
		must(t, s.each(0, func(line []byte, size int64) bool {
			lines = append(lines, string(line))
			return true
		}))
		if len(lines) != 2 || (lines[0] == "") != (over == 1) || !strings.HasPrefix(lines[1], "next") {
			t.Errorf("%d past the bound: %d lines, the first of %d bytes", over, len(lines), len(lines[0]))
		}
	}
}
