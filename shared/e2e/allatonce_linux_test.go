package e2e

import (
	"cmp"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"colabrelay/relay/pairing"
	"colabrelay/shared/e2e/fakevm"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/e2e/hostilevm"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

// Bounds of a relay whatever is asked of it in parallel.
const (
	mostDescriptors = 250
	mostThreads     = 60
)

// crowd are the attacks that hold calls, memory or disk, and how often each is called at once.
var crowd = map[string]int{
	"silence": 40, "upgrade": 20, "trickle": 10, "endless-head": 4, "endless-body": 2, "terabyte": 4,
	"pictures-large": 8, "pictures-50mpx": 4, "pictures-long": 8, "events": 4, "gzip": 2, "endless-blob": 8,
	"displays-small": 40, "folder-long": 20, "job-hangs": 5, "job-idle": 4, "job-reason": 5, "job-large": 4, "job-error": 5,
}

// crowdTools are what the calls use in place of run_code_quick.
var crowdTools = map[string]string{
	"folder-long": "download_from_colab", "job-hangs": "run_notebook", "job-idle": "run_code_cell", "job-reason": "run_notebook",
	"job-large": "run_chunked_operation", "job-error": "run_code_cell",
}

// Hostile executors hold a hundred and more calls of a relay, with all the memory and disk that
// they can make it use. The relay stays within its bounds for a process, it answers the calls
// for the honest VM meanwhile, and it has let go of everything at the end.
func TestEverythingAtOnceLeavesTheHonestVMItsTurn(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	home := t.TempDir()
	store := pairing.Open(filepath.Join(home, "config", "colab-relay"))
	names := []string{"none"}
	for name := range crowd {
		names = append(names, name)
	}
	var vms []*fakevm.VM
	for _, name := range names {
		vm := hostilevm.Start(t, name)
		vm.Put("data/a", []byte("x"))
		vms = append(vms, vm)
		_, err := store.Put(pairing.Runtime{Name: name, URL: vm.URL, Secret: vm.Secret})
		must(t, err)
	}
	h := startHost(t, "", harness.HostConfig{Dir: home, Env: []string{
		"LOCAL_SAVE_DIR=" + home + "/saved", "CHECKPOINT_DIR=" + home + "/checkpoints", "RELAY_NOTEBOOK_DIRS=" + home,
		"RELAY_TOOLSETS=all", "RELAY_HOLD=30s",
	}})
	honest := func() {
		want(t, call(t, h, "run_code_quick", map[string]any{"code": "1", "runtime_name": "none"}), map[string]any{"success": true})
	}
	honest()
	before := processOf(t, h)

	var hostile sync.WaitGroup
	for name, calls := range crowd {
		for i := range calls {
			dir := filepath.Join(home, "own", name, strconv.Itoa(i))
			must(t, os.MkdirAll(dir, 0o700))
			tool, args := cmp.Or(crowdTools[name], "run_code_quick"), map[string]any{"code": "1", "runtime_name": name}
			switch {
			case tool == "download_from_colab":
				args = map[string]any{"remote_path": "/content/data", "runtime_name": name}
			case strings.HasPrefix(name, "job-"):
				args = parallelJob(t, tool, dir, name)
			}
			hostile.Go(func() {
				if _, err := h.Call(within.Context(t), tool, args); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
	}
	ended := make(chan struct{})
	go func() { defer close(ended); hostile.Wait() }()
	answers, most := 0, before
	for running := true; running; answers++ {
		honest()
		now := processOf(t, h)
		most.Descriptors, most.Threads = max(most.Descriptors, now.Descriptors), max(most.Threads, now.Threads)
		select {
		case <-ended:
			running = false
		default:
		}
	}
	got := call(t, h, "download_from_colab", map[string]any{"remote_path": "/content/data", "local_filename": "after/", "runtime_name": "none"})
	if got.String("status") != "done" { // the lists of the hostile folders have ended with their calls
		t.Errorf("the honest VM's folder: %s", got.Text)
	}
	if answers < 3 {
		t.Errorf("the honest VM was answered %d times before the hostile calls ended", answers)
	}
	mb := peak(t, h.PID())
	if mb > mostMemory {
		t.Errorf("the relay took %d MB, over %d", mb, mostMemory)
	}
	if most.Descriptors > mostDescriptors || most.Threads > mostThreads {
		t.Errorf("the relay had %d descriptors and %d threads, over %d and %d", most.Descriptors, most.Threads, mostDescriptors, mostThreads)
	}
	files, size := inFolder(t, home)
	if size > mostHostileSaved {
		t.Errorf("the relay saved %d bytes, over %d", size, int64(mostHostileSaved))
	}
	t.Logf("%d answers of the honest VM; %d MB, %d descriptors, %d threads; %d files of %d bytes",
		answers, mb, most.Descriptors, most.Threads, files, size)
	for _, vm := range vms {
		vm.HangUp() // what remains open is no connection that is kept for the next call
	}
	settled(t, h, before.Descriptors)
}

// processOf returns what the relay holds.
func processOf(t *testing.T, h *harness.Host) harness.Process {
	t.Helper()
	p, err := harness.ProcessOf(h.PID())
	must(t, err)
	return p
}

// settled waits until the relay has no more descriptors than before.
func settled(t *testing.T, h *harness.Host, descriptors int) {
	t.Helper()
	var p harness.Process
	err := harness.Poll(within.Context(t), func() (bool, error) {
		p = processOf(t, h)
		return p.Descriptors <= descriptors, nil
	})
	if err != nil {
		for _, path := range p.Files {
			t.Log(path)
		}
		t.Errorf("the relay keeps %d descriptors, %d before; %v", p.Descriptors, descriptors, err)
	}
}
