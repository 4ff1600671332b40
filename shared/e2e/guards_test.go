package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

// These tests bound what calls cost in counts, which do not depend on the machine: requests,
// connections, bytes, allocations and memory. Each bound's comment says what breaks it.
// Allocations and memory vary a little, so their bounds leave room.

// program is one of the two programs, started with GODEBUG=gctrace=1.
type program struct {
	name   string
	pid    int
	output *harness.Output
}

func (p program) memory(t *testing.T) harness.Memory {
	t.Helper()
	m, err := harness.MemoryOf(p.pid)
	must(t, err)
	return m
}

// collection matches the heap's sizes in a line about one garbage collection, in MiB: at
// its start, at its end, and what of that was in use.
var collection = regexp.MustCompile(`(\d+)->(\d+)->(\d+) MB`)

// allocated returns how many MiB the program has allocated since its start, until its last
// garbage collection.
func (p program) allocated(t *testing.T) float64 {
	t.Helper()
	all, used := 0, 0
	for _, sizes := range collection.FindAllStringSubmatch(p.output.String(), -1) {
		end, err := strconv.Atoi(sizes[2])
		must(t, err)
		all += end - used
		used, err = strconv.Atoi(sizes[3])
		must(t, err)
	}
	return float64(all)
}

// measured is an executor, and a relay that reaches it through a wire that counts.
type measured struct {
	e    *harness.Executor
	h    *harness.Host
	wire *harness.Wire
	dir  string // where the relay saves files
}

var tracing = []string{"GODEBUG=gctrace=1"}

// measure starts a relay for e and makes its first call, which also asks for the instance.
func measure(t *testing.T, e *harness.Executor) measured {
	t.Helper()
	wire, err := harness.NewWire(strings.TrimPrefix(e.Ready.LocalURL, "http://"))
	must(t, err)
	t.Cleanup(wire.Close)
	dir := t.TempDir()
	m := measured{e: e, wire: wire, dir: dir}
	m.h = startHost(t, "http://"+wire.Addr, harness.HostConfig{Env: append(tracing, "RELAY_HOLD=90s", "LOCAL_SAVE_DIR="+dir)})
	want(t, quick(t, m.h, "1+1"), map[string]any{"result": "2"})
	return m
}

func measuredExecutor(t *testing.T) *harness.Executor {
	t.Helper()
	return startExecutor(t, harness.ExecutorConfig{Python: stacks.Old(t).Python, Env: tracing})
}

func (m measured) programs() []program {
	return []program{{"executor", m.e.PID(), m.e.Output}, {"relay", m.h.PID(), m.h.Stderr}}
}

const (
	warmUp     = 100 // calls that fill caches and pools
	quickCalls = 300

	// Bytes of a call, with HTTP's headers: 855 and 1,405 are usual. A new header or a longer
	// signature exceeds the first. Sealed texts are padded to the next 256 bytes, and the
	// second allows for one such step more: two steps exceed it.
	mostQuickUp   = 900
	mostQuickDown = 1700
)

// mostQuickAllocated is what each program may allocate for a call, in KiB. A buffer that is
// no longer reused, a copy of each event, or a schema that each call parses exceeds it. On a busy
// machine the calls take longer, and what the programs do by the clock adds to them.
var mostQuickAllocated = map[string]float64{"executor": 100, "relay": 100}

// mostQuickGrowth is how much each program's memory may grow in quickCalls, in MiB. The
// executor remembers each execution in about 2 KiB. Keeping its events, or a leaked goroutine or
// response body in either program, exceeds it.
var mostQuickGrowth = map[string]float64{"executor": 12, "relay": 8}

func TestWhatQuickCallsCost(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	e := measuredExecutor(t)
	idle, busy := measure(t, e), measure(t, e)
	repeat := func(times int) {
		for range times {
			want(t, quick(t, busy.h, "1+1"), map[string]any{"result": "2"})
		}
	}
	repeat(warmUp)
	var memory, allocated []float64
	for _, p := range busy.programs() {
		memory, allocated = append(memory, p.memory(t).Now), append(allocated, p.allocated(t))
	}
	idle.wire.CutAt()
	busy.wire.CutAt()
	repeat(quickCalls)

	got := busy.wire.Traffic()
	t.Logf("%d calls: %+v", quickCalls, got)
	// A second request, such as a poll for the result, would cost another round trip.
	if got.Requests != quickCalls {
		t.Errorf("%d calls took %d requests", quickCalls, got.Requests)
	}
	// A connection that is not reused costs one or two round trips for its handshakes. A body
	// that is not read to its end, or an answer that closes its connection, causes that.
	if got.Connections != 0 {
		t.Errorf("%d calls opened %d connections", quickCalls, got.Connections)
	}
	if got.Up > quickCalls*mostQuickUp || got.Down > quickCalls*mostQuickDown {
		t.Errorf("a call takes %d bytes up and %d down, want at most %d and %d", got.Up/quickCalls, got.Down/quickCalls, mostQuickUp, mostQuickDown)
	}
	// Polling by an idle relay, or a connection that it keeps alive by requests, would use up
	// a tunnel's quota.
	if got := idle.wire.Traffic(); got != (harness.Traffic{}) {
		t.Errorf("meanwhile an idle relay caused %+v", got)
	}
	for i, p := range busy.programs() {
		grown, perCall := p.memory(t).Peak-memory[i], (p.allocated(t)-allocated[i])*1024/quickCalls
		t.Logf("the %s grew by %.1f MiB from %.1f and allocated %.0f KiB a call", p.name, grown, memory[i], perCall)
		if grown > mostQuickGrowth[p.name] {
			t.Errorf("the %s grew by %.1f MiB, want at most %.0f", p.name, grown, mostQuickGrowth[p.name])
		}
		if most := mostQuickAllocated[p.name]; perCall > most || perCall <= 0 {
			t.Errorf("the %s allocated %.0f KiB a call, want at most %.0f", p.name, perCall, most)
		}
	}
}

// bothWays uploads a file or folder and downloads it again, one call each, and passes what
// each call cost to check.
func (m measured) bothWays(t *testing.T, local string, check func(tool string, cost harness.Traffic)) {
	t.Helper()
	for _, move := range []struct {
		tool string
		args map[string]any
	}{
		{"upload_to_colab", map[string]any{"local_path": local, "remote_path": "moved"}},
		{"download_from_colab", map[string]any{"remote_path": "moved", "local_filename": "back"}},
	} {
		m.wire.CutAt()
		want(t, call(t, m.h, move.tool, move.args), map[string]any{"success": true})
		got := m.wire.Traffic()
		t.Logf("%s: %+v", move.tool, got)
		check(move.tool, got)
	}
	for _, p := range m.programs() {
		t.Logf("the %s took %.0f MiB", p.name, p.memory(t).Peak)
	}
}

const (
	smallFiles = 2000 // 5000 under LONG
	// mostFolderRequests is for the first smallFiles: two batches of contract.MaxBatchFiles, two
	// pages of a listing or one manifest, and a few more. Each further thousand takes one of
	// both. Smaller batches or pages, or a request for each file, exceed it.
	mostFolderRequests = 7
	// mostConnections is for any transfer: as many as travel at once, and two to spare. A
	// connection for each part or batch exceeds it.
	mostConnections = 10
)

func TestManySmallFilesTravelInFewRequests(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	m := measure(t, measuredExecutor(t))
	folder := filepath.Join(t.TempDir(), "many")
	must(t, os.Mkdir(folder, 0o700))
	content := make([]byte, 1000)
	files, requests := smallFiles, int64(mostFolderRequests)
	if longSuites() {
		files, requests = files+3000, requests+2*3
	}
	for n := range files {
		must(t, os.WriteFile(filepath.Join(folder, fmt.Sprint(n)), fmt.Append(content, n), 0o600))
	}
	m.bothWays(t, folder, func(tool string, cost harness.Traffic) {
		if cost.Requests > requests || cost.Connections > mostConnections {
			t.Errorf("%s of %d files took %d requests on %d new connections, want at most %d and %d", tool, files, cost.Requests, cost.Connections, requests, mostConnections)
		}
	})
	if got, _ := inFolder(t, filepath.Join(m.dir, "back")); got != files {
		t.Errorf("%d files came back", got)
	}
}

const (
	largeFile = 256 << 20
	// mostPartRequests is for largeFile: 32 parts of 8 MiB, of which the last are smaller, and
	// what begins and ends a transfer. Parts of 4 MiB exceed it.
	mostPartRequests = 50
	// mostOverhead is the bytes on the wire beyond largeFile: 16 for each record of 64 KiB,
	// and about 2 KiB for each part. Base64, smaller records, or sending 256 KiB again exceed it.
	mostOverhead = largeFile / 1000
	// mostTransferMemory is how much a program may grow, in MiB: a few records for each of
	// the parts that travel at once. Holding even half of these parts in memory exceeds it.
	mostTransferMemory = 24
)

func TestALargeFileTakesLittleMemoryEachWay(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	m := measure(t, measuredExecutor(t))
	local := filepath.Join(t.TempDir(), "large")
	sum := bigFile(t, local, largeFile)
	var before []float64
	for _, p := range m.programs() {
		before = append(before, p.memory(t).Now)
	}
	m.bothWays(t, local, func(tool string, cost harness.Traffic) {
		if cost.Requests > mostPartRequests || cost.Connections > mostConnections {
			t.Errorf("%s took %d requests on %d new connections, want at most %d and %d", tool, cost.Requests, cost.Connections, mostPartRequests, mostConnections)
		}
		if extra := cost.Up + cost.Down - largeFile; extra > mostOverhead {
			t.Errorf("%s sent %d bytes beyond the file's, want at most %d", tool, extra, mostOverhead)
		}
		for i, p := range m.programs() {
			if grown := p.memory(t).Peak - before[i]; grown > mostTransferMemory {
				t.Errorf("%s: the %s grew by %.0f MiB, want at most %d", tool, p.name, grown, mostTransferMemory)
			}
		}
	})
	if got := fileDigest(t, filepath.Join(m.dir, "back")); got != sum {
		t.Errorf("the file came back with the SHA-256 %s, want %s", got, sum)
	}
}
