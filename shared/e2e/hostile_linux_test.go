package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"colabrelay/relay/pairing"
	"colabrelay/shared/e2e/fakevm"
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
	what := fmt.Sprintf("%s of %s, which %s", a.tool, a.c.Name, a.c.About)
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

const mostCommandMemory = 250 // MB, of one command

// Each command meets two cases. The command ends, or the person can end
// it; its messages are plain, its memory is bounded, and it writes nothing outside its folders.
func TestNoAttackHarmsACommand(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	names := slices.Sorted(maps.Keys(hostileCommands))
	for i, c := range hostilevm.Cases {
		if i%4 > 1 || i/4 >= len(names) {
			continue
		}
		name := names[i/4]
		t.Run(c.Name+"/"+name, func(t *testing.T) {
			t.Parallel()
			attackCommand(t, c, name)
		})
	}
}

func attackCommand(t *testing.T, c hostilevm.Case, name string) {
	t.Helper()
	vm := hostilevm.Start(t, c.Name)
	vm.Put("data/a", []byte("x"))
	home := t.TempDir()
	hostileFolder(t, home)
	before := allFiles(t, home)
	args := hostileCommands[name]
	if name == "pair" {
		args = append(slices.Clone(args), vm.Pairing())
	}
	cmd := exec.Command(binaries.Relay, args...)
	cmd.Dir = home
	cmd.Env = []string{"HOME=" + home, "XDG_CONFIG_HOME=" + home + "/config", "XDG_CACHE_HOME=" + home + "/cache", "XDG_DATA_HOME=" + home + "/data",
		"LOCAL_SAVE_DIR=" + home + "/saved", "COLAB_URL=" + vm.URL, "COLAB_SECRET=" + vm.Secret.Reveal()}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	must(t, cmd.Start())
	if mb := untilInterrupted(t, cmd); mb > mostCommandMemory {
		t.Errorf("it took %.0f MB", mb)
	}
	if !strings.HasSuffix(name, "run") && name != "attach" { // what code prints goes to a pipe as it is
		wantPlain(t, "stdout", out.String())
	}
	wantPlain(t, "stderr", errs.String())
	for path := range allFiles(t, home) {
		file := strings.TrimPrefix(path, home+"/")
		folder, _, _ := strings.Cut(file, "/")
		if _, old := before[path]; !old && !slices.Contains([]string{"saved", "config", "cache", "data", "colab_results"}, folder) && !downloaded.MatchString(file) {
			t.Errorf("it wrote %q", file)
		}
	}
}

// downloaded matches the files of a download into the present folder, named after what the
// person typed.
var downloaded = regexp.MustCompile(`^(data|gone|\.colab-relay-)[^/]*(/|$)`)

// untilInterrupted waits for the end of a command, which it interrupts as a person does: after a
// while, and then once more. It returns the largest resident memory in MB.
func untilInterrupted(t *testing.T, cmd *exec.Cmd) (most float64) {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // most fail, as they should
		close(ended)
	}()
	began, interrupts := time.Now(), 0
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for {
		select {
		case <-ended:
			return most
		case <-poll.C:
		}
		if m, err := harness.MemoryOf(cmd.Process.Pid); err == nil {
			most = max(most, m.Peak)
		}
		if running := time.Since(began); interrupts < 2 && running > time.Duration(3+2*interrupts)*time.Second {
			_ = cmd.Process.Signal(os.Interrupt)
			interrupts++
		} else if running > within.Limit {
			t.Error("two interrupts did not end it")
			_ = cmd.Process.Kill()
			<-ended
			return most
		}
	}
}

// twoCells is a notebook whose cells a run sends as one job.
const twoCells = `{"cells":[{"cell_type":"code","id":"a","source":"1","metadata":{},"outputs":[],"execution_count":null},
{"cell_type":"code","id":"b","source":"2","metadata":{},"outputs":[],"execution_count":null}],"metadata":{},"nbformat":4,"nbformat_minor":5}`

// jobCalls are the tools that use jobs or read what they did, in their order.
func jobCalls(dir, runtime string) []struct {
	tool string
	args map[string]any
} {
	notebook := filepath.Join(dir, "n.ipynb")
	return []struct {
		tool string
		args map[string]any
	}{
		{"run_code_cell", map[string]any{"notebook_path": filepath.Join(dir, "c.ipynb"), "cellId": "a", "runtime_name": runtime}},
		{"run_notebook", map[string]any{"notebook_path": notebook, "runtime_name": runtime}},
		{"run_notebook", map[string]any{"notebook_path": notebook, "runtime_name": runtime}},
		{"get_cells", map[string]any{"notebook_path": notebook}},
		{"run_chunked_operation", map[string]any{"setup_code": "x = 1", "loop_code": "x += 1", "n_iterations": 3, "checkpoint_name": runtime, "runtime_name": runtime}},
		{"get_checkpoint", map[string]any{"operation": runtime}},
		{"list_executions", map[string]any{"runtime_name": runtime}},
	}
}

// pairJobs pairs a relay with an honest VM and one for each lie about jobs.
func pairJobs(t *testing.T, home string) map[string]*fakevm.VM {
	t.Helper()
	store := pairing.Open(filepath.Join(home, "config", "colab-relay"))
	vms := map[string]*fakevm.VM{}
	for _, name := range append([]string{"none"}, jobCases()...) {
		vm := hostilevm.Start(t, name)
		_, err := store.Put(pairing.Runtime{Name: name, URL: vm.URL, Secret: vm.Secret})
		must(t, err)
		vms[name] = vm
		dir := filepath.Join(home, "own", name)
		must(t, os.MkdirAll(dir, 0o700))
		for _, file := range []string{"n.ipynb", "c.ipynb"} {
			must(t, os.WriteFile(filepath.Join(dir, file), []byte(twoCells), 0o600))
		}
	}
	return vms
}

func jobCases() (names []string) {
	for _, c := range hostilevm.JobCases {
		names = append(names, c.Name)
	}
	return names
}

// Whatever a VM says of its jobs, no run of a notebook or a loop succeeds by it, no output is in
// a cell twice, no word of it passes for the relay's, and each call ends.
func TestNoLieAboutAJobPassesForSuccess(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	home := t.TempDir()
	vms := pairJobs(t, home)
	h := startHost(t, "", harness.HostConfig{Dir: home, Env: []string{
		"LOCAL_SAVE_DIR=" + home + "/saved", "CHECKPOINT_DIR=" + home + "/checkpoints", "RELAY_NOTEBOOK_DIRS=" + home,
		"RELAY_TOOLSETS=all", "RELAY_HOLD=2s",
	}})
	t.Run("cases", func(t *testing.T) {
		for name := range vms {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				lieAboutJobs(t, h, filepath.Join(home, "own", name), name)
			})
		}
	})
	for name, vm := range vms {
		if vm.Count("POST /v1/jobs") == 0 {
			t.Errorf("%s was sent no job", name)
		}
	}
	if mb := peak(t, h.PID()); mb > mostMemory {
		t.Errorf("the relay took %d MB, over %d", mb, mostMemory)
	}
}

// lieAboutJobs calls each tool for the runtime that lies as a case does; the one named none does
// not.
func lieAboutJobs(t *testing.T, h *harness.Host, dir, runtime string) {
	for _, c := range jobCalls(dir, runtime) {
		ask := callOnce // a lie may take all of a call's time
		if runtime == "none" {
			ask = call
		}
		a := ask(t, h, c.tool, c.args)
		for _, line := range ownLines(a.Text) {
			if strings.Contains(line, "FORGED") {
				t.Errorf("%s says %q in:\n%s", c.tool, line, a.Text)
			}
		}
		status := a.String("status")
		succeeded := a.Fields["success"] == true && (status == "succeeded" || status == "finished")
		switch {
		case c.tool == "run_chunked_operation" && status == "finished", c.tool == "get_checkpoint" && strings.Contains(a.Text, ": finished"):
			t.Errorf("a loop of which nothing ran has finished: %s", a.Text)
		case runtime == "none" && strings.HasPrefix(c.tool, "run_") && c.tool != "run_chunked_operation" && !succeeded:
			t.Errorf("the honest %s: %s", c.tool, a.Text)
		case c.tool == "run_code_cell" && strings.Contains(a.Text, "hello"): // its only execution was read, and did succeed
		case runtime != "none" && succeeded:
			t.Errorf("%s succeeded: %s", c.tool, a.Text)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "n.ipynb"))
	must(t, err)
	if n := strings.Count(string(text), "hello"); n > 2 || runtime == "none" && n != 2 {
		t.Errorf("the output of two cells is in the notebook %d times", n)
	}
	reported(t, dir, runtime)
}

// reported checks what is on record of the last runs of notebooks in a folder.
func reported(t *testing.T, dir, runtime string) {
	t.Helper()
	records, err := filepath.Glob(filepath.Join(dir, "..", "..", "checkpoints", "*.json"))
	must(t, err)
	for _, path := range records {
		var record struct {
			Path string
			Run  struct{ Plan []struct{ Status string } }
		}
		text, err := os.ReadFile(path)
		must(t, err)
		must(t, json.Unmarshal(text, &record))
		succeeded := 0
		for _, cell := range record.Run.Plan {
			if cell.Status == "succeeded" {
				succeeded++
			}
		}
		if strings.HasPrefix(record.Path, dir+"/") && runtime != "none" && succeeded == 2 {
			t.Errorf("both cells are said to have succeeded:\n%s", text)
		}
	}
}
