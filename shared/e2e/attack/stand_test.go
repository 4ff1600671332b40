package attack

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"colabrelay/relay/client"
	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
	"colabrelay/shared/within"
)

// stand is a real executor under attack, and an honest relay that uses it meanwhile.
type stand struct {
	t       *testing.T
	vm      *harness.Executor
	address string
	key     auth.Secret
	relay   *client.Client
	http    *http.Transport // of key holders
	name    string          // Executor-Instance; see instance
	honest  int             // runs of the relay since the attacks began
	before  usage
}

// newStand borrows an executor and connects the honest relay.
func newStand(t *testing.T) *stand {
	t.Helper()
	key, err := auth.NewSecret(secret)
	must(t, err)
	s := &stand{t: t, vm: pool.Borrow(t, stacks.Old(t).Python), key: key}
	s.address = strings.TrimPrefix(s.vm.Ready.LocalURL, "http://")
	s.relay, err = client.New(client.Config{BaseURL: s.vm.Ready.LocalURL, Secret: key})
	must(t, err)
	s.http = &http.Transport{DisableCompression: true}
	s.run("ran = []; honest = 0")
	s.before = s.usage()
	return s
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// run runs code, which must succeed, and returns its result as text.
func (s *stand) run(code string) string {
	s.t.Helper()
	result, err := s.submit(within.Context(s.t), code)
	must(s.t, err)
	return result
}

func (s *stand) submit(ctx context.Context, code string) (string, error) {
	x, err := s.relay.Submit(ctx, contract.Submit{Code: code, WaitSeconds: 40})
	if err != nil {
		return "", err
	}
	if x.Status != contract.StatusSucceeded {
		return "", fmt.Errorf("%q ended as %s: %s", code, x.Status, x.Reason)
	}
	for _, e := range x.Events {
		if e.Type == contract.EventExecuteResult {
			var text string
			return text, json.Unmarshal(e.Data["text/plain"], &text)
		}
	}
	return "", nil
}

// workHonestly is a run of the honest relay, which must succeed whatever the attackers do.
func (s *stand) workHonestly() {
	s.t.Helper()
	s.run("honest += 1")
	s.honest++
}

// usage is what the executor has of the system.
type usage struct {
	sockets, threads int // a connection is a socket and a goroutine
	memory           harness.Memory
}

var threadCount = regexp.MustCompile(`(?m)^Threads:\s+(\d+)$`)

func (s *stand) usage() (u usage) {
	s.t.Helper()
	proc := fmt.Sprintf("/proc/%d", s.vm.PID())
	files, err := filepath.Glob(filepath.Join(proc, "fd", "*"))
	must(s.t, err)
	for _, f := range files {
		if to, err := os.Readlink(f); err == nil && strings.HasPrefix(to, "socket:") {
			u.sockets++
		}
	}
	status, err := os.ReadFile(filepath.Join(proc, "status"))
	must(s.t, err)
	_, err = fmt.Sscan(string(threadCount.FindSubmatch(status)[1]), &u.threads)
	must(s.t, err)
	u.memory, err = harness.MemoryOf(s.vm.PID())
	must(s.t, err)
	return u
}

// Bounds of what attacks cost. Of sockets, nothing may be left.
const (
	mostThreadsLeft = 24  // Go keeps threads that waited in system calls
	mostMemory      = 160 // MiB more than before, at the peak: some bodies of 8 MiB, which Go frees late
)

// end checks that the attacks left nothing. want are the numbers
// of the submits that ran.
func (s *stand) end(want []int) {
	s.t.Helper()
	if honest := s.run("honest"); honest != fmt.Sprint(s.honest) || s.honest == 0 {
		s.t.Errorf("the honest relay ran %d times, the kernel %s", s.honest, honest)
	}
	var ran []int
	must(s.t, json.Unmarshal([]byte(s.run("sorted(ran)")), &ran))
	if fmt.Sprint(ran) != fmt.Sprint(want) {
		s.t.Errorf("submits %v ran, want %v", ran, want)
	}
	s.relay.Close()
	s.http.CloseIdleConnections()
	var after usage
	within.Until(s.t, "the sockets of the attacks are closed", func() bool {
		after = s.usage()
		return after.sockets <= s.before.sockets
	})
	if after.threads > s.before.threads+mostThreadsLeft {
		s.t.Errorf("%d threads, %d before", after.threads, s.before.threads)
	}
	if grown := after.memory.Peak - s.before.memory.Now; grown > mostMemory {
		s.t.Errorf("memory grew by %.0f MiB at the peak", grown)
	}
	s.t.Logf("sockets %d to %d, threads %d to %d, memory %.0f to %.0f MiB (peak %.0f)", s.before.sockets, after.sockets,
		s.before.threads, after.threads, s.before.memory.Now, after.memory.Now, after.memory.Peak)
}
