package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"colabrelay/shared/e2e/harness"
)

// steps of the long run. After half of them it waits until the relay was killed, so that the
// demo does not depend on the machine's speed.
const (
	steps    = 50
	longCode = "import os, time\nfor step in range(%d):\n    print('step', step, 'loss', round(1 / (step + 1), 4), flush=True)\n    time.sleep(0.1)\n    if step == %d:\n        open('half', 'w').close()\n        while not os.path.exists('relay-killed'):\n            time.sleep(0.1)"
)

func (d *demo) longRun(ctx context.Context) {
	d.title("the relay is killed during a long run", "The run belongs to the VM, so it goes on without the relay, and a new relay fetches its output.")
	d.host.Close()
	d.startHost(ctx, longHold, d.firstMessages(5))
	arguments := map[string]any{"code": fmt.Sprintf(longCode, steps, steps/2)}
	d.killRelayDuring(ctx, "half", "run_code_long", arguments)
	d.newRelay(ctx)
	list := d.call(ctx, d.host, "list_executions", map[string]any{"limit": 1})
	id := firstID(list)
	output, a := "", harness.Answer{}
	for a.Fields == nil || isUnfinished(a) {
		a = d.call(ctx, d.host, "get_execution", map[string]any{"execution_id": id, "offset": a.Int("next_offset"), "wait_seconds": 60})
		output += a.String("stdout")
	}
	n := strings.Count(output, "\n")
	harness.FailIf(a.String("status") != "succeeded" || n != steps, "%d of %d lines were received, and the run is %q", n, steps, a.String("status"))
	d.line("all %d lines were received, each exactly once", steps)
}

// firstID returns the id of the newest execution in an answer of list_executions.
func firstID(list harness.Answer) string {
	all, _ := list.Fields["executions"].([]any)
	if len(all) == 0 {
		return ""
	}
	newest, _ := all[0].(map[string]any)
	id, _ := newest["execution_id"].(string)
	return id
}

// isUnfinished reports whether the run of an answer has not ended: on a busy machine any run may
// outlast its call.
func isUnfinished(a harness.Answer) bool {
	return a.String("status") == "queued" || a.String("status") == "running"
}

// firstMessages returns a function that prints the first progress messages.
func (d *demo) firstMessages(most int) func(string) {
	var lock sync.Mutex
	shown := 0
	return func(message string) {
		lock.Lock()
		defer lock.Unlock()
		if shown++; shown <= most {
			d.line("  progress: %s", message)
		}
	}
}

// killRelayDuring calls a tool, kills the relay when code on the VM has written the file, and tells
// the code so with the file relay-killed.
func (d *demo) killRelayDuring(ctx context.Context, file, tool string, arguments map[string]any) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	old, work := d.host, d.executor.Config.Dir
	killed := whenWritten(ctx, filepath.Join(work, file), old.Kill)
	d.asked(tool, arguments)
	// A call of a busy machine may be over before the kill. Then the run still waits for it.
	for a, err := old.Call(ctx, tool, arguments); err == nil; a, err = old.Call(ctx, tool, arguments) {
		d.answered(tool, a)
		if a.Fields["can_continue"] == true {
			continue
		}
		harness.FailIf(!isUnfinished(a), "%s ended before the relay was killed: %s", tool, a.Text)
		break
	}
	harness.Check(<-killed)
	d.line("$ kill -9 %d   # the relay", old.PID())
	harness.Check(os.WriteFile(filepath.Join(work, "relay-killed"), nil, 0o600))
}

// newRelay starts a relay in place of the one that was killed.
func (d *demo) newRelay(ctx context.Context) {
	d.startHost(ctx, longHold, nil)
	d.line("a new relay, pid %d", d.host.PID())
	fmt.Fprintln(d.out)
}

// whenWritten calls do when a file exists. The channel then gets nil, or the error of ctx.
func whenWritten(ctx context.Context, path string, do func()) <-chan error {
	result := make(chan error, 1)
	go func() {
		err := harness.Poll(ctx, func() (bool, error) { _, err := os.Stat(path); return err == nil, nil })
		if err == nil {
			do()
		}
		result <- err
	}()
	return result
}

func (d *demo) endlessLoop(ctx context.Context) {
	d.title("an endless loop", "The executor interrupts it at its deadline. The variables are kept.")
	d.quick(ctx, "rounds = 0")
	a := d.toItsEnd(ctx, "run_code_long", map[string]any{"code": "while True:\n    rounds += 1", "timeout_seconds": 2})
	harness.FailIf(a.String("status") != "timed_out", "the endless loop is %q", a.String("status"))
	a = d.quick(ctx, "weights.shape, rounds")
	harness.FailIf(!strings.HasPrefix(a.String("result"), "((2, 3), "), "the variables are not kept: %s", a.Text)
}

func (d *demo) kernelDeath(ctx context.Context) {
	d.title("the kernel is killed", "As an out-of-memory kill or a native crash would. The answer says so, and the next call uses a new kernel.")
	a := d.quick(ctx, "import os\nos.kill(os.getpid(), 9)")
	harness.FailIf(a.String("status") != "kernel_died", "the killed kernel is %q", a.String("status"))
	a = d.quick(ctx, "'weights' in globals()")
	harness.FailIf(a.String("result") != "False", "the new kernel is not seen to be one: %s", a.Text)
}

func (d *demo) cost(ctx context.Context) {
	d.title("the cost", "Durations as the host measured them, the memory of both programs, and a check that nothing is left running.")
	for _, call := range d.calls {
		d.line("%-24s %10s", call.tool, took(call.took))
	}
	fmt.Fprintln(d.out)
	d.line("%-24s %7.1f MB", "relay, resident", residentMB(d.host.PID()))
	d.line("%-24s %7.1f MB", "executor, resident", residentMB(d.executor.PID()))
	requests := d.requests()
	d.line("%-24s %7d", "requests to the executors", requests)
	_ = d.host.Close() // it waits for the relay's end; the SDK's client reports a slow one as an error
	harness.Check(d.executor.Stop(ctx))
	// The executor deletes this record after its kernel has ended.
	record := filepath.Join(d.executor.Config.Dir, ".colab-relay", "kernel.json")
	_, err := os.Stat(record)
	harness.FailIf(!errors.Is(err, os.ErrNotExist), "the kernel may still be running: %q exists", record)
	fmt.Fprintln(d.out)
	d.line("Executor, kernel and relay have ended. Their files are in %s; you can delete that folder.", d.dir)
}

// residentMB returns a process's resident memory in MB, or 0 on systems without /proc.
func residentMB(pid int) float64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	var kb float64
	if _, rest, found := strings.Cut(string(status), "VmRSS:"); found {
		_, _ = fmt.Sscan(rest, &kb)
	}
	return kb / 1024
}

// requests returns how many requests the executors logged.
func (d *demo) requests() int {
	total := 0
	for _, e := range append(d.before, d.executor) {
		log := harness.Must(os.ReadFile(filepath.Join(e.Config.Dir, ".colab-relay", "executor.log")))
		total += strings.Count(string(log), `"msg":"request"`)
	}
	return total
}

// analysis are the cells of the demo's notebook, each with its id.
var analysis = [][2]string{
	{"data", "import os, time\nvalues = [3, 1, 2]\ntries = 0"},
	{"fetch", "tries += 1\nif tries < 3:\n    raise ConnectionError('the server did not answer')\nfetched = 40"},
	{"mean", "mean = sum(values) / 0"},
	{"uses-mean", "print('the mean is', mean)"},
	{"train", "for step in range(5):\n    print('step', step, flush=True)\n    open('training', 'w').close()\n    while not os.path.exists('relay-killed'):\n        time.sleep(0.1)"},
	{"result", "print('result', fetched + 3)\nopen('finished', 'w').close()"},
}

// writeAnalysis writes the notebook.
func writeAnalysis(path string) {
	var cells []string
	for _, cell := range analysis {
		cells = append(cells, fmt.Sprintf(`{"cell_type": "code", "execution_count": null, "id": %q, "metadata": {}, "outputs": [], "source": %q}`, cell[0], cell[1]))
	}
	text := "{\"cells\": [\n" + strings.Join(cells, ",\n") + "\n], \"metadata\": {}, \"nbformat\": 4, \"nbformat_minor\": 5}\n"
	harness.Check(os.WriteFile(path, []byte(text), 0o600))
}

// notebook runs a notebook and kills the relay meanwhile.
func (d *demo) notebook(ctx context.Context) {
	d.title("a notebook finishes while no relay exists", "One cell fails twice and is retried, one fails and its dependant is skipped. The VM has the whole run, so it goes on to the last cell without a relay; a new relay writes the outputs into the file.")
	path := filepath.Join(d.dir, "analysis.ipynb")
	writeAnalysis(path)
	for _, cell := range analysis {
		d.line("cell %s", cell[0])
		fmt.Fprintln(d.out, indent(cell[1], "    │ "))
	}
	fmt.Fprintln(d.out)
	arguments := map[string]any{"notebook_path": path, "on_error": "skip_dependants", "retries": 2}
	harness.Check(os.Remove(filepath.Join(d.executor.Config.Dir, "relay-killed"))) // of the long run
	d.killRelayDuring(ctx, "training", "run_notebook", arguments)
	harness.Check(<-whenWritten(ctx, filepath.Join(d.executor.Config.Dir, "finished"), func() {}))
	d.line("the last cell has run on the VM")
	d.newRelay(ctx)
	d.toTheEnd(ctx, "run_notebook", arguments)
	d.notebookReport(ctx, path)
}

// notebookReport shows the report of the run, and checks what ran.
func (d *demo) notebookReport(ctx context.Context, path string) {
	cmd := exec.CommandContext(ctx, d.binaries.Relay, "nb", "report", path)
	cmd.Env = append(os.Environ(), d.home()...)
	report, err := cmd.CombinedOutput()
	harness.FailIf(err != nil, "colab-relay nb report: %w\n%s", err, report)
	d.line("$ colab-relay nb report %s", path)
	fmt.Fprintln(d.out, indent(string(report), "      "))
	saved := harness.Must(os.ReadFile(path))
	for _, want := range []string{`step 4\n`, `result 43\n`} {
		harness.FailIf(!strings.Contains(string(saved), want), "the notebook lacks the output %q", want)
	}
	for _, want := range []string{"4 succeeded, 1 failed, 1 skipped", "ran 3 times"} {
		harness.FailIf(!strings.Contains(string(report), want), "the report lacks %q", want)
	}
}
