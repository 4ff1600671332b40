// The demo command shows the main job on this machine: it starts an executor
// with a real kernel, drives the relay over stdio as an MCP host would, and
// prints the session. All answers are real. The exit code is 0 when every part
// gave the expected result, otherwise 1.
//
// With -svg FILE it also writes some parts as an animated picture, docs/session.svg.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
)

func main() {
	svg := flag.String("svg", "", "also write some parts as an animated picture to this `file`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r := &recording{out: os.Stdout, began: time.Now()}
	err := run(ctx, r)
	if err == nil && *svg != "" {
		err = r.save(*svg)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "\ndemo:", err)
		stop()
		os.Exit(1)
	}
}

// demo is the state that the parts of the demo share.
type demo struct {
	*transcript
	binaries harness.Binaries
	python   string
	dir      string // holds all files of the demo; kept at the end
	executor *harness.Executor
	before   []*harness.Executor // executors that were killed
	host     *harness.Host
}

func run(ctx context.Context, out *recording) error {
	root := stacks.Root()
	dir, err := os.MkdirTemp("", "colab-relay-demo-")
	if err != nil {
		return err
	}
	d := &demo{
		transcript: &transcript{out: out},
		binaries: harness.Binaries{
			Executor: filepath.Join(root, "bin", "executor"),
			Relay:    filepath.Join(root, "bin", "colab-relay"),
		},
		python: filepath.Join(root, ".python", "old", "bin", "python"),
		dir:    dir,
	}
	defer d.close()
	parts := []func(context.Context){
		d.setUp, d.executorUp, d.hostConnects, d.probe, out.record, d.quickRuns, out.pause, d.plot,
		out.record, d.longRun, out.pause, d.endlessLoop, d.kernelDeath, d.notebook,
		d.upload, d.chunkedRun, d.anotherVM, d.resumed, d.alone, d.savedState, d.download, d.cost,
	}
	for _, part := range parts {
		if err := harness.Try(func() { part(ctx) }); err != nil {
			return fmt.Errorf("part %d: %w", d.part, err)
		}
	}
	return nil
}

func (d *demo) close() {
	if d.host != nil {
		d.host.Close()
	}
	if d.executor != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
		defer cancel()
		_ = d.executor.Stop(ctx)
	}
}

// shownLines is the most lines of an answer that are printed.
const shownLines = 24

// transcript prints the session and records how long each call took.
type transcript struct {
	out   io.Writer
	part  int
	calls []timed
}

type timed struct {
	tool string
	took time.Duration
}

// title prints the heading of a part and one sentence about it.
func (t *transcript) title(name, why string) {
	t.part++
	fmt.Fprintf(t.out, "\n%2d  %s\n    %s\n\n", t.part, strings.ToUpper(name), why)
}

// line prints one indented line.
func (t *transcript) line(format string, args ...any) {
	fmt.Fprintf(t.out, "    "+format+"\n", args...)
}

// call calls a tool and prints the request and the answer.
func (t *transcript) call(ctx context.Context, host *harness.Host, tool string, args map[string]any) harness.Answer {
	t.asked(tool, args)
	a := harness.Must(host.Call(ctx, tool, args))
	t.answered(tool, a)
	return a
}

func (t *transcript) asked(tool string, args map[string]any) {
	fmt.Fprintf(t.out, "    → %s %s\n", tool, arguments(args))
}

// codeArguments are printed as text, all other arguments as JSON.
var codeArguments = []string{"code", "setup_code", "loop_code"}

func arguments(args map[string]any) string {
	rest, code := map[string]any{}, ""
	for name, value := range args {
		if !slices.Contains(codeArguments, name) {
			rest[name] = value
		}
	}
	for _, name := range codeArguments {
		text, ok := args[name].(string)
		if !ok {
			continue
		}
		if name != "code" {
			code += "\n    " + name
		}
		code += "\n" + indent(text, "    │ ")
	}
	if len(rest) == 0 {
		return code
	}
	data, _ := json.Marshal(rest)
	return string(data) + code
}

func (t *transcript) answered(tool string, a harness.Answer) {
	t.calls = append(t.calls, timed{tool, a.Took})
	mark := "←"
	if a.IsError {
		mark = "← isError"
	}
	fmt.Fprintf(t.out, "    %s after %s\n%s\n", mark, took(a.Took), indent(shown(a.Text), "      "))
	for _, image := range a.Images {
		fmt.Fprintf(t.out, "      [image content: %s, %d KB of base64]\n", image.MIMEType, len(image.Data)>>10)
	}
	fmt.Fprintln(t.out)
}

// shown returns the head and the tail of a text that is longer than shownLines.
func shown(text string) string {
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(all) <= shownLines {
		return strings.Join(all, "\n")
	}
	cut := fmt.Sprintf("… %d more lines …", len(all)-shownLines)
	half := shownLines / 2
	return strings.Join(slices.Concat(all[:half], []string{cut}, all[len(all)-half:]), "\n")
}

func indent(text, prefix string) string {
	return prefix + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n"+prefix)
}

func took(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

func (d *demo) setUp(ctx context.Context) {
	d.title("the setup", "Make has built two static programs and a private Python environment with ipykernel.")
	for _, path := range []string{d.binaries.Executor, d.binaries.Relay} {
		info, err := os.Stat(path)
		harness.FailIf(err != nil, "%w: run make demo", err)
		d.line("%-11s %s, %.1f MB", filepath.Base(path), path, float64(info.Size())/1e6)
	}
	out, err := exec.CommandContext(ctx, d.python, "-c",
		"import ipykernel, IPython, platform; print(platform.python_version(), ipykernel.__version__, IPython.__version__)").Output()
	harness.FailIf(err != nil, "%q: %w: run make python", d.python, err)
	var python, ipykernel, ipython string
	_, _ = fmt.Sscan(string(out), &python, &ipykernel, &ipython)
	d.line("%-11s %s, ipykernel %s, IPython %s (Colab's kernel stack)", "python", python, ipykernel, ipython)
	d.line("%-11s %s", "folder", d.dir)
}

func (d *demo) executorUp(ctx context.Context) {
	d.title("start the executor", "On Colab, a notebook cell starts it. Here it listens on loopback, without a tunnel.")
	work := filepath.Join(d.dir, "vm")
	harness.Check(os.Mkdir(work, 0o700))
	d.line("$ executor --listen 127.0.0.1:0 --workdir %s", work)
	d.executor = harness.Must(harness.StartExecutor(ctx, harness.ExecutorConfig{Binary: d.binaries.Executor, Python: d.python, Dir: work}))
	fmt.Fprintln(d.out, indent(redact(d.executor.Output.String()), "      "))
	d.line("executor and kernel were ready after %s\n", took(d.executor.Took))
	d.curl(ctx, d.executor.Ready.LocalURL+"/health")
}

// redact replaces the pairing string, in case a person shares the demo's output.
func redact(text string) string {
	const mark = "colab-relay:"
	i := strings.Index(text, mark)
	if i < 0 {
		return text
	}
	rest := text[i+len(mark):]
	end := strings.IndexAny(rest, " \n")
	if end < 0 {
		end = len(rest)
	}
	return text[:i+len(mark)] + "…" + rest[end:]
}

func (d *demo) curl(ctx context.Context, url string) {
	d.line("$ curl -s %s", url)
	request := harness.Must(http.NewRequestWithContext(ctx, http.MethodGet, url, nil))
	response := harness.Must(http.DefaultClient.Do(request))
	defer response.Body.Close()
	d.line("  %s", strings.TrimSpace(string(harness.Must(io.ReadAll(response.Body)))))
}

func (d *demo) hostConnects(ctx context.Context) {
	d.title("connect an MCP host", "The relay is paired once. Then an MCP host starts it on stdio, and the agent sees these tools.")
	d.pair(ctx)
	began := time.Now()
	d.startHost(ctx, longHold, nil)
	d.line("initialize answered after %s", took(time.Since(began)))
	tools := harness.Must(d.host.Tools(ctx))
	for _, tool := range tools {
		d.line("  %-24s %s", tool.Name, tool.Annotations.Title)
	}
	fmt.Fprintln(d.out)
	d.call(ctx, d.host, "check_colab_connection", nil)
}

func (d *demo) home() []string {
	return []string{"HOME=" + d.dir, "XDG_CONFIG_HOME=" + d.dir + "/config", "XDG_CACHE_HOME=" + d.dir + "/cache", "COLAB_URL="}
}

// Values of RELAY_HOLD. Calls answer when their work is done, however long a busy machine takes.
// With shortHold they also answer soon after the VM was lost.
const (
	longHold  = 230 * time.Second
	shortHold = 12 * time.Second
)

func (d *demo) startHost(ctx context.Context, hold time.Duration, progress func(string)) {
	d.host = harness.Must(harness.StartHost(ctx, harness.HostConfig{
		Binary:   d.binaries.Relay,
		Dir:      d.dir,
		Env:      []string{"RELAY_HOLD=" + hold.String(), "RELAY_STRUCTURED=on", "RELAY_TOOLSETS=core,notebook", "LOCAL_SAVE_DIR=" + filepath.Join(d.dir, "results")},
		Progress: progress,
	}))
}

func (d *demo) probe(ctx context.Context) {
	d.title("probe the machine", "An agent asks what the machine has before it uses it.")
	d.call(ctx, d.host, "probe_colab_environment", nil)
}

func (d *demo) quickRuns(ctx context.Context) {
	d.title("quick runs", "Variables persist between calls, as in a notebook. A Python exception is returned as an error.")
	d.quick(ctx, "import numpy as np\nweights = np.arange(6.0).reshape(2, 3)\nprint('made', weights.shape)")
	a := d.quick(ctx, "weights.sum()")
	harness.FailIf(!strings.Contains(a.String("result"), "15.0"), "the variable is not shared: %s", a.Text)
	d.call(ctx, d.host, "list_colab_variables", nil)
	a = d.quick(ctx, "weights[7]")
	harness.FailIf(!a.IsError, "an IndexError was reported as success")
}

// quick runs code to its end.
func (d *demo) quick(ctx context.Context, code string) harness.Answer {
	return d.toItsEnd(ctx, "run_code_quick", map[string]any{"code": code})
}

// toItsEnd calls a tool that runs code, and waits for the end of the run.
func (d *demo) toItsEnd(ctx context.Context, tool string, arguments map[string]any) harness.Answer {
	a := d.call(ctx, d.host, tool, arguments)
	for isUnfinished(a) {
		a = d.call(ctx, d.host, "get_execution", map[string]any{"execution_id": a.String("execution_id"), "wait_seconds": 60})
	}
	return a
}

// toTheEnd repeats a call while its answer says that the same call continues.
func (d *demo) toTheEnd(ctx context.Context, tool string, arguments map[string]any) harness.Answer {
	a := d.call(ctx, d.host, tool, arguments)
	for a.Fields["can_continue"] == true {
		a = d.call(ctx, d.host, tool, arguments)
	}
	return a
}

func (d *demo) plot(ctx context.Context) {
	d.title("a plot", "The agent receives it as an image. The original is saved on the laptop.")
	a := d.quick(ctx, "import matplotlib.pyplot as plt\nx = np.linspace(0, 10, 500)\nplt.plot(x, np.sin(x) * np.exp(-x / 4))\nplt.title('a damped wave')\nplt.show()")
	harness.FailIf(len(a.Images) != 1, "got %d images, want 1", len(a.Images))
}
