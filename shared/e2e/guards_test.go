package e2e

import (
	"fmt"
	"os"
	"path/filepath"
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
	smallFiles = 1000
	// mostFolderRequests is for smallFiles: a batch of contract.MaxBatchFiles, a page of a listing
	// or one manifest, and a few more. Smaller batches or pages, or a request for each file,
	// exceed it.
	mostFolderRequests = 5
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
	for n := range smallFiles {
		must(t, os.WriteFile(filepath.Join(folder, fmt.Sprint(n)), fmt.Append(content, n), 0o600))
	}
	m.bothWays(t, folder, func(tool string, cost harness.Traffic) {
		if cost.Requests > mostFolderRequests || cost.Connections > mostConnections {
			t.Errorf("%s of %d files took %d requests on %d new connections, want at most %d and %d", tool, smallFiles, cost.Requests, cost.Connections, mostFolderRequests, mostConnections)
		}
	})
	if got, _ := inFolder(t, filepath.Join(m.dir, "back")); got != smallFiles {
		t.Errorf("%d files came back", got)
	}
}
