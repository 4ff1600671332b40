package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"colabrelay/executor/tunnel/ngroktest"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

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
