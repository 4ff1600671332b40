package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"colabrelay/executor/tunnel/ngroktest"
	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
	"colabrelay/shared/line/linetest"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

// asProgram is the variable that makes this test program be the executor: the real
// main, with the race detector in it.
const asProgram = "EXECUTOR_AS_PROGRAM"

// noExitSleep keeps the race detector from sleeping a second at each exit.
const noExitSleep = "GORACE=atexit_sleep_ms=0"

// program is a running executor.
type program struct {
	t      *testing.T
	cmd    *exec.Cmd
	dir    string
	out    *output
	errs   *output
	ended  chan struct{}
	secret auth.Secret
	url    string
	file   string // the ready file, if it is not in dir
}

type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

type option func(*program)

func withEnv(pairs ...string) option {
	return func(p *program) { p.cmd.Env = append(p.cmd.Env, pairs...) }
}

func withArgs(args ...string) option {
	return func(p *program) { p.cmd.Args = append(p.cmd.Args, args...) }
}

func in(dir string) option { return func(p *program) { p.dir = dir } }

func withStdout(f *os.File) option { return func(p *program) { p.cmd.Stdout = f } }

// start runs the executor on the old stack and a free port.
func start(t *testing.T, options ...option) *program {
	t.Helper()
	p := newProgram(t, options...)
	p.cmd.Args = append(p.cmd.Args, "--workdir", p.dir, "--ready-file", p.readyFile())
	p.run()
	return p
}

// newProgram prepares the executor with flags and environment that all tests need.
func newProgram(t *testing.T, options ...option) *program {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	p := &program{t: t, dir: t.TempDir(), out: &output{}, errs: &output{}, ended: make(chan struct{})}
	p.cmd = exec.Command(self, "--listen", "127.0.0.1:0", "--python", stacks.Old(t).Python)
	p.cmd.Env = []string{asProgram + "=1", "PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), noExitSleep}
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.errs
	for _, o := range options {
		o(p)
	}
	p.cmd.Dir = p.dir
	return p
}

// run starts the program, which heeds signals even if nohup or a shell's background job
// makes the tests ignore them: a signal with a handler is not inherited as ignored. The
// test ends the program.
func (p *program) run() {
	p.t.Helper()
	heeded := make(chan os.Signal, 1)
	signal.Notify(heeded, syscall.SIGHUP, os.Interrupt)
	err := p.cmd.Start()
	signal.Stop(heeded)
	must(p.t, err)
	go func() {
		defer close(p.ended)
		p.cmd.Wait()
	}()
	p.t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-p.ended
		if p.t.Failed() {
			p.t.Logf("stdout:\n%s\nstderr:\n%s", p.out, p.errs)
		}
	})
}

func (p *program) readyFile() string { return cmp.Or(p.file, filepath.Join(p.dir, "ready.json")) }

// ready waits for the ready file.
func (p *program) ready() readyInfo {
	p.t.Helper()
	var info readyInfo
	p.until("there is a ready file", func() bool {
		raw, err := os.ReadFile(p.readyFile())
		return err == nil && json.Unmarshal(raw, &info) == nil
	})
	pairing, err := auth.ParsePairing(info.Pairing)
	must(p.t, err)
	p.url, p.secret = pairing.URL, pairing.Secret
	return info
}

// until waits until f is true. It fails when the program has ended.
func (p *program) until(what string, f func() bool) {
	p.t.Helper()
	within.Until(p.t, what, func() bool {
		if f() {
			return true
		}
		select {
		case <-p.ended:
			p.t.Fatalf("the executor ended before %s", what)
		default:
		}
		return false
	})
}

// exit waits until the program has ended, and returns its exit code.
func (p *program) exit() int {
	p.t.Helper()
	within.Receive(p.t, "the executor's end", p.ended)
	return p.cmd.ProcessState.ExitCode()
}

func (p *program) signal(sig syscall.Signal) { must(p.t, p.cmd.Process.Signal(sig)) }

// call makes one sealed request.
func call[T any](p *program, method, path string, in any) T {
	p.t.Helper()
	var body []byte
	if in != nil {
		body, _ = json.Marshal(in)
	}
	req, x := p.sealed(method, path, body, time.Now())
	res, answer := p.send(req, x)
	var out T
	if err := json.Unmarshal(answer, &out); err != nil || res.StatusCode != http.StatusOK {
		p.t.Fatalf("%s %s: %d %s", method, path, res.StatusCode, answer)
	}
	return out
}

// sealed makes a request to the executor that answers now.
func (p *program) sealed(method, path string, body []byte, created time.Time) (*http.Request, *auth.Exchange) {
	p.t.Helper()
	req, err := http.NewRequest(method, p.url+path, nil)
	must(p.t, err)
	if method != http.MethodGet {
		res, _ := p.send(p.sealed("GET", contract.PathKernel, nil, time.Now()))
		req.Header.Set(contract.HeaderInstance, res.Header.Get(contract.HeaderInstance))
	}
	return req, linetest.Seal(p.t, p.secret, req, body, created)
}

// send sends a request and opens the answer.
func (p *program) send(req *http.Request, x *auth.Exchange) (*http.Response, []byte) {
	p.t.Helper()
	tr := &http.Transport{DisableCompression: true}
	defer tr.CloseIdleConnections()
	res, err := (&http.Client{Transport: tr}).Do(req)
	must(p.t, err)
	defer res.Body.Close()
	answer, err := linetest.Open(x, res, res.Body, req.URL.Path == contract.PathContent)
	must(p.t, err)
	return res, answer
}

func (p *program) submit(requestID, code string, wait float64) contract.Execution {
	p.t.Helper()
	return call[contract.Execution](p, "POST", contract.PathExecutions, contract.Submit{RequestID: requestID, Code: code, WaitSeconds: wait})
}

// restart restarts the kernel and checks that there is a new one.
func (p *program) restart() {
	p.t.Helper()
	before := call[contract.Kernel](p, "GET", contract.PathKernel, nil)
	after := call[contract.Kernel](p, "POST", contract.PathKernelRestart, contract.KernelRef{KernelID: before.KernelID})
	if after.KernelID == "" || after.KernelID == before.KernelID {
		p.t.Fatalf("kernel %q was restarted as %q", before.KernelID, after.KernelID)
	}
}

// started submits code that prints first, and waits for that output.
func (p *program) started(requestID, code string) string {
	p.t.Helper()
	id := p.submit(requestID, "print('started', flush=True)\n"+code, 0).ExecutionID
	e := call[contract.Execution](p, "GET", contract.PathExecutions+"/"+id+"?wait_seconds=20", nil)
	if len(e.Events) == 0 {
		p.t.Fatalf("no output; the status is %s", e.Status)
	}
	return id
}

func get(url string) (int, string) {
	tr := &http.Transport{DisableCompression: true}
	defer tr.CloseIdleConnections()
	res, err := (&http.Client{Transport: tr}).Get(url)
	if err != nil {
		return 0, ""
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(body)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// printed returns what an execution printed. A print may arrive in several events.
func printed(e contract.Execution) string {
	var b strings.Builder
	for _, ev := range e.Events {
		b.WriteString(ev.Text)
	}
	return b.String()
}

func pyString(s string) string { return "r'" + s + "'" }

func resultOf(e contract.Execution) string {
	for _, event := range e.Events {
		var text string
		if json.Unmarshal(event.Data["text/plain"], &text) == nil {
			return text
		}
	}
	return ""
}

// TestMain makes this test program be the executor under its name, with the race
// detector in it, for the scripts and for start.
func TestMain(m *testing.M) {
	switch os.Getenv(asProgram) {
	case "":
	case asPlainUser:
		becomePlain()
	case asContained:
		becomeContained()
	default:
		main()
	}
	testscript.Main(leakChecked{m}, map[string]func(){"executor": main})
}

// leakChecked fails tests that leave goroutines behind.
type leakChecked struct{ m *testing.M }

func (l leakChecked) Run() int {
	code := l.m.Run()
	if code != 0 {
		return code
	}
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// The scripts run the command line as a person does: one for each command. They find in their environment:
//
//	SECRET       a valid secret
//	PYTHON       an interpreter that has ipykernel
//	TAKEN        an address on which something listens
//	EDGE, CA     an ngrok that accepts every token, and its root certificate
//	REFUSING     an ngrok that refuses every token
//	REFUSING_CA  its root certificate
//
// On PATH are the executor, python3 and false, but not cloudflared.
func TestScripts(t *testing.T) { runScripts(t, "enroll", "help", "settings", "version") }

func TestScriptsThatStartTheExecutorOrItsDoctor(t *testing.T) {
	tier.Long(t)
	runScripts(t, "doctor", "serve")
}

func runScripts(t *testing.T, names ...string) {
	t.Helper()
	var files []string
	for _, name := range names {
		files = append(files, filepath.Join("testdata", "script", name+".txtar"))
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { taken.Close() }) // the scripts run in parallel, after this function
	edge, refusing := ngroktest.Start(t), ngroktest.Start(t)
	refusing.RefuseToken("ERR_NGROK_105")
	testscript.Run(t, testscript.Params{
		Files: files,
		Setup: func(e *testscript.Env) error {
			e.Setenv("SECRET", longSecret)
			e.Setenv("PYTHON", stacks.Old(t).Python)
			e.Setenv("TAKEN", taken.Addr().String())
			e.Setenv("EDGE", edge.Addr)
			e.Setenv("CA", edge.CAFile)
			e.Setenv("REFUSING", refusing.Addr)
			e.Setenv("REFUSING_CA", refusing.CAFile)
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("PATH", programsOnly(t, "executor", "python3", "false"))
			e.Vars = append(e.Vars, noExitSleep)
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){"exits": exits},
	})
}

// exits runs a program and checks its exit code: exits CODE PROGRAM ARGS...
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM [ARGS...]")
	}
	code := "0"
	err := ts.Exec(args[1], args[2:]...)
	if exit, ok := err.(*exec.ExitError); ok {
		code = fmt.Sprint(exit.ExitCode())
	} else {
		ts.Check(err)
	}
	if code != args[0] {
		ts.Fatalf("%q exited with %s, want %s", args[1:], code, args[0])
	}
}

// programsOnly returns a PATH on which only these programs are.
func programsOnly(t *testing.T, names ...string) string {
	t.Helper()
	folder := t.TempDir()
	for _, name := range names {
		program, err := exec.LookPath(name)
		must(t, err)
		must(t, os.Symlink(program, filepath.Join(folder, name)))
	}
	return folder
}
