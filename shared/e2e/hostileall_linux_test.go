package e2e

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"colabrelay/relay/pairing"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/e2e/hostilevm"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

const (
	mostMemory       = 300       // MB of a relay, whatever is asked of it
	mostHostileText  = 80_000    // characters of an answer
	mostHostileSaved = 400 << 20 // bytes of files on the laptop
)

// attack is one call of a tool for the runtime that misbehaves as a case does.
type attack struct {
	c    hostilevm.Case
	tool string
	dir  string // of its own files
}

// One relay is paired with an executor for each case. Whatever they answer to whichever tool,
// the relay answers the host in time, with a bounded text that a terminal can show; it writes
// nothing outside its folders, its memory stays bounded, and it still serves the honest one.
func TestNoAttackHarmsTheRelay(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	home := t.TempDir()
	hostileFolder(t, home)
	must(t, os.Mkdir(filepath.Join(home, ".ssh"), 0o700))
	before := allFiles(t, home)
	pairAll(t, filepath.Join(home, "config", "colab-relay"))
	h := startHost(t, "", harness.HostConfig{Dir: home, Env: []string{
		"LOCAL_SAVE_DIR=" + home + "/saved", "CHECKPOINT_DIR=" + home + "/checkpoints", "RELAY_NOTEBOOK_DIRS=" + home,
		"XDG_DATA_HOME=" + home + "/data", "RELAY_TOOLSETS=all", "RELAY_HOLD=2s",
	}, Progress: func(message string) { wantPlain(t, "progress", message) }})
	attacks := planAttacks(t, h)
	sort := map[bool]chan attack{true: make(chan attack), false: make(chan attack)}
	var all sync.WaitGroup
	for slow, workers := range map[bool]int{true: 32, false: 2} {
		for range workers {
			all.Go(func() {
				for a := range sort[slow] {
					endure(t, h, a)
				}
			})
		}
	}
	for i, a := range attacks {
		a.dir = filepath.Join(home, "own", strconv.Itoa(i))
		must(t, os.MkdirAll(a.dir, 0o700))
		hostileFolder(t, a.dir)
		sort[a.c.Slow] <- a
	}
	close(sort[true])
	close(sort[false])
	ended := make(chan struct{})
	go func() { defer close(ended); all.Wait() }()
	answers := 0
	for running := true; running; answers++ { // the honest VM gets its turn meanwhile
		want(t, call(t, h, "run_code_quick", map[string]any{"code": "1", "runtime_name": "none"}), map[string]any{"success": true})
		select {
		case <-ended:
			running = false
		default:
		}
	}
	if answers < 3 {
		t.Errorf("the honest VM was answered %d times before the hostile calls ended", answers)
	}
	wantPlain(t, "the log", strings.ReplaceAll(h.Stderr.String(), "\n", " "))
	wantOwnFilesOnly(t, home, before)
	if mb := peak(t, h.PID()); mb > mostMemory {
		t.Errorf("the relay took %d MB, over %d", mb, mostMemory)
	}
	t.Logf("%d cases, %d calls, %d answers of the honest VM, %d MB", len(hostilevm.Cases), len(attacks), answers, peak(t, h.PID()))
}

// peak returns the largest resident memory of a process so far, in MB.
func peak(t *testing.T, pid int) int {
	t.Helper()
	m, err := harness.MemoryOf(pid)
	must(t, err)
	return int(m.Peak)
}

// pairAll pairs the relay whose folder of pairings this is with an executor for each case.
func pairAll(t *testing.T, dir string) {
	t.Helper()
	store := pairing.Open(dir)
	for _, c := range hostilevm.Cases {
		vm := hostilevm.Start(t, c.Name)
		vm.Put("data/a\x1b[2Jb\u202e", []byte("x"))
		_, err := store.Put(pairing.Runtime{Name: c.Name, URL: vm.URL, Secret: vm.Secret})
		must(t, err)
	}
}

// planAttacks returns the calls: each case runs code, and has one more tool, and each tool has a
// case.
func planAttacks(t *testing.T, h *harness.Host) (plan []attack) {
	t.Helper()
	tools, err := h.Tools(within.Context(t))
	must(t, err)
	var remote []string
	for _, tool := range tools {
		if _, ok := tool.InputSchema.Properties["runtime_name"]; ok {
			remote = append(remote, tool.Name)
		}
	}
	r := rand.New(rand.NewPCG(14, 0))
	for i, c := range hostilevm.Cases {
		tool := remote[r.IntN(len(remote))]
		if i < len(remote) {
			tool = remote[i]
		}
		plan = append(plan, attack{c: c, tool: tool}, attack{c: c, tool: "run_code_quick"})
	}
	return plan
}

// endure makes a call and checks its answer.
func endure(t *testing.T, h *harness.Host, a attack) {
	args := map[string]any{"runtime_name": a.c.Name}
	for name, value := range hostileArguments[a.tool] {
		if name == "notebook_path" || name == "local_path" {
			value = filepath.Join(a.dir, value.(string))
		}
		args[name] = value
	}
	got, err := h.Call(within.Context(t), a.tool, args)
	what := fmt.Sprintf("%s of %s", a.tool, a.c.Name)
	switch {
	case err != nil:
		t.Errorf("%s: %v", what, err)
		return
	case strings.Contains(got.Text, "the relay failed in"): // a panic
		t.Errorf("%s: %s", what, got.Text)
	case len(got.Text) > mostHostileText:
		t.Errorf("%s shows %d bytes", what, len(got.Text))
	}
	wantPlain(t, what, got.Text)
	eachString(got.Fields, func(s string) { wantPlain(t, what+", fields", s) })
}

// allFiles returns the files below dir, with their sizes.
func allFiles(t *testing.T, dir string) map[string]int64 {
	t.Helper()
	all := map[string]int64{}
	must(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			all[path] = info.Size()
		}
		return err
	}))
	return all
}

// wantOwnFilesOnly checks that all new files are in the relay's folders, are small together and
// have names that can be shown.
func wantOwnFilesOnly(t *testing.T, home string, before map[string]int64) {
	t.Helper()
	total := int64(0)
	for path, size := range allFiles(t, home) {
		name := strings.TrimPrefix(path, home+"/")
		folder, _, _ := strings.Cut(name, "/")
		_, old := before[path]
		switch folder {
		case "saved", "checkpoints", "config", "cache", "data", "own":
			total += size
		default:
			if !old {
				t.Errorf("the relay wrote %q", name)
			}
		}
		wantPlain(t, "a file's name", name)
	}
	if total > mostHostileSaved {
		t.Errorf("%d bytes were saved", total)
	}
}
