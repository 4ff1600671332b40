package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"colabrelay/relay/cli"
	"colabrelay/relay/pairing"
	"colabrelay/relay/vm/colabcli/colabclitest"
	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/fakevm"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/e2e/standin"
	"colabrelay/shared/freeport"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

// TestMain lets tests start this test program as relay, and looks for goroutines that the
// Go tests leave behind.
func TestMain(m *testing.M) {
	testscript.Main(leakChecker{m}, map[string]func(){"colab-relay": main, "colab-tab": colabTab})
}

type leakChecker struct{ *testing.M }

// Run implements testscript.TestingM.
func (l leakChecker) Run() int {
	code := l.M.Run()
	os.RemoveAll(executorDir)
	if err := goleak.Find(); code == 0 && err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
		return 1
	}
	return code
}

// TestScripts runs the scripts of testdata/script, each of which is about a command. They start the
// relay that RELAY_BIN names, or else this test program. Besides relay and the commands of
// testscript they have:
//
//	fakevm NAME [SECRET]      start a fake VM; set NAME_URL, NAME_SECRET, NAME_PAIRING, NAME_KEY_ID
//	executor NAME             start a real executor in the script's folder, a further one in the folder NAME, and set the same variables
//	killvm NAME               kill a real executor
//	cutruns TEXT              cut the histories of runs with this text as a kill soon after their start does
//	stranger NAME             start a web server that is no executor; set NAME_URL
//	vmwrite NAME PATH FILE    copy a file to a fake VM
//	vmcmp NAME PATH FILE      compare a file on a fake VM
//	refuse NAME WHAT          make a fake VM refuse uploads (disk-full) or unsigned requests (unsigned)
//	releases                  start a server of releases and set RELEASES
//	ownsecret VARIABLE NAME   set a variable to the secret of a runtime on this computer
//	wrongsecret VARIABLE URL  set a variable to a pairing string of URL with a new secret
//	setfrom VARIABLE FILE [N] set a variable to the first line of a file, or its first N characters
//	write FILE TEXT           write a text and a line break to a file
//	exits CODE PROGRAM ARG... run a program and compare its exit code
//	await FILE                wait until a file exists
//	awaittext FILE TEXT       wait until a file has a text
//	colabcli                  install the stand-in for Google's command line
//	freeport VARIABLE         set a variable to a free port of loopback
//
// The program colab-tab stands in for a browser; see colabTab.
func TestScripts(t *testing.T) { testscript.Run(t, scripts(t, "testdata/script")) }

// TestLongScripts runs the scripts of the other commands.
func TestLongScripts(t *testing.T) {
	tier.Long(t)
	testscript.Run(t, scripts(t, "testdata/longscript"))
}

// scripts returns how the scripts of a folder are run.
func scripts(t *testing.T, dir string) testscript.Params {
	python, built := stacks.Old(t).Python, folderOfRelay(t)
	return testscript.Params{
		Dir: dir, RequireUniqueNames: true,
		Setup: func(env *testscript.Env) error {
			env.Values[vmsKey{}], env.Values[realVMsKey{}] = map[string]*fakevm.VM{}, map[string]*harness.Executor{}
			if !testing.Short() {
				env.Setenv("NOTEBOOK_PYTHON", stacks.Notebook(t))
			}
			if built != "" {
				env.Setenv("PATH", built+string(filepath.ListSeparator)+env.Getenv("PATH"))
			}
			env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
			env.Setenv("XDG_CONFIG_HOME", filepath.Join(env.WorkDir, "config"))
			env.Setenv("XDG_CACHE_HOME", filepath.Join(env.WorkDir, "cache"))
			env.Setenv("XDG_DATA_HOME", "")
			return os.MkdirAll(filepath.Join(env.WorkDir, "home"), 0o700)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"fakevm": startFakeVM, "executor": func(ts *testscript.TestScript, _ bool, args []string) { startRealVM(ts, args[0], python) }, "stranger": startStranger, "vmwrite": writeToVM, "vmcmp": compareOnVM,
			"refuse": makeVMRefuse, "releases": serveReleases, "ownsecret": setOwnSecret, "wrongsecret": setPairingOfNewSecret, "write": writeText, "setfrom": setFromFile, "exits": exits, "await": awaitFile, "awaitlogs": awaitLogs,
			"colabcli": func(ts *testscript.TestScript, _ bool, _ []string) { installColab(ts, t) },
			"cutruns":  cutRuns, "awaittext": awaitText, "freeport": setFreePort,
			"killvm": func(ts *testscript.TestScript, _ bool, args []string) { realVMs(ts)[args[0]].Kill() },
		},
	}
}

// installColab puts a stand-in for Google's command line on PATH.
func installColab(ts *testscript.TestScript, t *testing.T) {
	program := colabclitest.Install(t)
	ts.Setenv("PATH", filepath.Dir(program.Path)+string(filepath.ListSeparator)+ts.Getenv("PATH"))
}

// folderOfRelay returns a folder with the relay that RELAY_BIN names, empty for none. It
// starts faster than this test program, which make test builds with the race detector.
func folderOfRelay(t *testing.T) string {
	t.Helper()
	path := os.Getenv("RELAY_BIN")
	if path == "" {
		return ""
	}
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil { // go test caches results until a file that it saw changes
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(path, filepath.Join(dir, "colab-relay")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// executorDir is where buildExecutor builds the executor.
var executorDir string

// vmsKey is the key of a script's fake VMs.
type vmsKey struct{}

// realVMsKey is the key of a script's executors.
type realVMsKey struct{}

func realVMs(ts *testscript.TestScript) map[string]*harness.Executor {
	return ts.Value(realVMsKey{}).(map[string]*harness.Executor)
}

func vms(ts *testscript.TestScript) map[string]*fakevm.VM {
	return ts.Value(vmsKey{}).(map[string]*fakevm.VM)
}

func setVM(ts *testscript.TestScript, name, url string, secret auth.Secret) {
	for variable, value := range map[string]string{
		"_URL": url, "_SECRET": secret.Reveal(), "_KEY_ID": secret.KeyID(), "_PAIRING": auth.Pairing{URL: url, Secret: secret}.String(),
	} {
		ts.Setenv(name+variable, value)
	}
}

func startFakeVM(ts *testscript.TestScript, _ bool, args []string) {
	secret := auth.GenerateSecret()
	if len(args) > 1 {
		var err error
		secret, err = auth.NewSecret(args[1])
		ts.Check(err)
	}
	vm := fakevm.NewWith(secret)
	s := httptest.NewServer(vm)
	ts.Defer(s.Close)
	vms(ts)[args[0]] = vm
	setVM(ts, args[0], s.URL, secret)
}

// startStranger starts what a wrong address may lead to. Unlike at an address where nothing
// listens, the relay gives up immediately.
func startStranger(ts *testscript.TestScript, _ bool, args []string) {
	s := httptest.NewServer(http.NotFoundHandler())
	ts.Defer(s.Close)
	ts.Setenv(args[0]+"_URL", s.URL)
}

// buildExecutor builds the executor once, into executorDir, unless EXECUTOR_BIN names one.
var buildExecutor = sync.OnceValues(func() (path string, err error) {
	if executorDir, err = os.MkdirTemp("", "relay-script-"); err != nil {
		return "", err
	}
	return harness.BuildExecutor(context.Background(), executorDir)
})

func startRealVM(ts *testscript.TestScript, name, python string) {
	binary, err := buildExecutor()
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), within.Limit)
	defer cancel()
	secret, dir := auth.GenerateSecret(), ts.MkAbs(".")
	if len(realVMs(ts)) > 0 { // two cannot share a folder
		dir = ts.MkAbs(name)
		ts.Check(os.MkdirAll(dir, 0o700))
	}
	e, err := harness.StartExecutor(ctx, harness.ExecutorConfig{Binary: binary, Python: python, Dir: dir, Secret: secret.Reveal()})
	ts.Check(err)
	ts.Defer(func() {
		ctx, cancel := context.WithTimeout(context.Background(), within.Limit)
		defer cancel()
		ts.Check(e.Stop(ctx))
	})
	realVMs(ts)[name] = e
	setVM(ts, name, e.Ready.LocalURL, secret)
}

func writeToVM(ts *testscript.TestScript, _ bool, args []string) {
	vms(ts)[args[0]].Put(args[1], []byte(ts.ReadFile(args[2])))
}

func compareOnVM(ts *testscript.TestScript, neg bool, args []string) {
	got, exists := vms(ts)[args[0]].File(args[1])
	if same := exists && string(got) == ts.ReadFile(args[2]); same == neg {
		ts.Fatalf("%s on the VM is %q", args[1], got)
	}
}

func makeVMRefuse(ts *testscript.TestScript, _ bool, args []string) {
	hooks := map[string]fakevm.Hook{
		"disk-full": func(_ context.Context, r *http.Request) error {
			if r.Method == http.MethodPut {
				return &contract.Error{Code: contract.CodeDiskFull, Message: "the disk is full", Hint: "delete something"}
			}
			return nil
		},
		"unsigned": func(_ context.Context, r *http.Request) error {
			if r.Header.Get(auth.HeaderSignature) == "" {
				return &contract.Error{Code: contract.CodeRateLimited, Message: "too many unsigned requests from this address"}
			}
			return nil
		},
	}
	vms(ts)[args[0]].On(hooks[args[1]])
}

func serveReleases(ts *testscript.TestScript, _ bool, _ []string) {
	files := http.FileServer(http.Dir(ts.MkAbs("releases")))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/moved/"):
			http.Redirect(w, r, strings.TrimPrefix(r.URL.Path, "/moved"), http.StatusFound)
		case strings.HasPrefix(r.URL.Path, "/large/"):
			w.Write(make([]byte, cli.MaxSums+1))
		default:
			files.ServeHTTP(w, r)
		}
	}))
	ts.Defer(s.Close)
	ts.Setenv("RELEASES", s.URL)
}

func setOwnSecret(ts *testscript.TestScript, _ bool, args []string) {
	secret, err := pairing.Open(filepath.Join(ts.Getenv("XDG_CONFIG_HOME"), "colab-relay")).SecretOf(args[1])
	ts.Check(err)
	ts.Setenv(args[0], secret.Reveal())
}

func setPairingOfNewSecret(ts *testscript.TestScript, _ bool, args []string) {
	ts.Setenv(args[0], auth.Pairing{URL: args[1], Secret: auth.GenerateSecret()}.String())
}

func writeText(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(args[1]+"\n"), 0o600))
}

func setFromFile(ts *testscript.TestScript, _ bool, args []string) {
	line, _, _ := strings.Cut(ts.ReadFile(args[1]), "\n")
	if len(args) > 2 {
		n, err := strconv.Atoi(args[2])
		ts.Check(err)
		line = line[:n]
	}
	ts.Setenv(args[0], line)
}

// exits runs a command that must end with an exit code, or with one of several: 0|75.
func exits(ts *testscript.TestScript, _ bool, args []string) {
	got := 0
	var exit *exec.ExitError
	switch err := ts.Exec(args[1], args[2:]...); {
	case errors.As(err, &exit):
		got = exit.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if !slices.Contains(strings.Split(args[0], "|"), strconv.Itoa(got)) {
		ts.Fatalf("exit code %d, want %s", got, args[0])
	}
}

func awaitFile(ts *testscript.TestScript, _ bool, args []string) {
	path := ts.MkAbs(args[0])
	ctx, cancel := context.WithTimeout(context.Background(), within.Limit)
	defer cancel()
	ts.Check(harness.Poll(ctx, func() (bool, error) {
		_, err := os.Stat(path)
		return err == nil, nil
	}))
}

// awaitLogs waits until the newest run's events have a text.
func awaitLogs(ts *testscript.TestScript, _ bool, args []string) {
	ctx, cancel := context.WithTimeout(context.Background(), within.Limit)
	defer cancel()
	ts.Check(harness.Poll(ctx, func() (bool, error) {
		err := ts.Exec(cli.CommandName, "logs", "--json")
		return err == nil && strings.Contains(ts.ReadFile("stdout"), args[0]), nil
	}))
}

func cutRuns(ts *testscript.TestScript, _ bool, args []string) {
	dir := filepath.Join(ts.Getenv("HOME"), ".local", "share", "colab-relay", "history")
	paths, err := filepath.Glob(filepath.Join(dir, "*.ndjson"))
	ts.Check(err)
	cut := 0
	for _, path := range paths {
		text := ts.ReadFile(path)
		if filepath.Base(path) == "index.ndjson" {
			var index strings.Builder
			for line := range strings.Lines(text) {
				if head, _, _ := strings.Cut(line, `,"state":`); strings.Contains(head, args[0]) {
					line = head + `,"state":{"status":"queued"}}` + "\n"
				}
				index.WriteString(line)
			}
			ts.Check(os.WriteFile(path, []byte(index.String()), 0o600))
		} else if head, _, _ := strings.Cut(text, "\n"); strings.Contains(head, args[0]) {
			ts.Check(os.WriteFile(path, []byte(head+"\n{\"event\":{\"off"), 0o600))
			cut++
		}
	}
	if cut == 0 {
		ts.Fatalf("no run with %q in %q", args[0], paths)
	}
}

// colabTab is a program of the scripts: a browser that shows the stand-in of Colab's page,
// whose notebook has a text cell and two code cells. It opens the URL that is its argument, or
// the first one in the file that its argument names, confirms the connection, and ends with it.
func colabTab() {
	if err := showTab(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "colab-tab:", err)
		os.Exit(1)
	}
}

func showTab(argument string) error {
	ctx, cancel := context.WithTimeout(context.Background(), within.Limit)
	defer cancel()
	address, err := destination(ctx, argument)
	if err != nil {
		return err
	}
	notebook := standin.NewNotebook(standin.NewCell("markdown", "# Title"), standin.NewCell("code", "1"), standin.NewCell("code", "2"))
	tab, err := standin.Dial(ctx, address, standin.Options{Notebook: notebook})
	if err != nil {
		return err
	}
	defer tab.Close()
	select {
	case <-tab.Done():
	case <-ctx.Done():
	}
	return nil
}

// awaitText waits until a file, which a program in the background writes, has a text.
func awaitText(ts *testscript.TestScript, _ bool, args []string) {
	ctx, cancel := context.WithTimeout(context.Background(), within.Limit)
	defer cancel()
	ts.Check(harness.Poll(ctx, func() (bool, error) {
		text, err := os.ReadFile(ts.MkAbs(args[0]))
		return err == nil && strings.Contains(string(text), args[1]), nil
	}))
}

func setFreePort(ts *testscript.TestScript, _ bool, args []string) {
	address, err := freeport.Address()
	ts.Check(err)
	_, port, err := net.SplitHostPort(address)
	ts.Check(err)
	ts.Setenv(args[0], port)
}

// destination returns the URL of Colab to which an argument leads.
func destination(ctx context.Context, argument string) (string, error) {
	if text, err := os.ReadFile(argument); err == nil {
		_, rest, _ := strings.Cut(string(text), "https://")
		address, _, _ := strings.Cut("https://"+rest, "\n")
		return address, nil
	}
	if strings.HasPrefix(argument, "https://") {
		return argument, nil
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, argument, nil)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultTransport.RoundTrip(request) // as a browser follows it, but to nobody
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	return answer.Header.Get("Location"), nil
}
