package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"colabrelay/executor/statedir"
	"colabrelay/executor/tunnel/ngroktest"
	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
)

func TestAGeneratedSecretIsShownOnceOnTheConsoleOnly(t *testing.T) {
	tier.Long(t)
	p := start(t)
	info := p.ready()
	want := readyInfo{
		URL: info.LocalURL, LocalURL: info.LocalURL, KeyID: p.secret.KeyID(), PID: p.cmd.Process.Pid,
		InstanceID: info.InstanceID, Pairing: info.Pairing,
	}
	if diff := cmp.Diff(want, info); diff != "" || info.InstanceID == "" {
		t.Errorf("ready file (-want +got):\n%s", diff)
	}
	if st, err := os.Stat(p.readyFile()); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("ready file: %v, %v", st.Mode(), err)
	}
	p.submit("x", "1", 20)
	p.signal(syscall.SIGTERM)
	if code := p.exit(); code != 0 {
		t.Errorf("exit code is %d", code)
	}
	if n := strings.Count(p.out.String(), "paste this line:\n           "+info.Pairing+"\n"); n != 1 {
		t.Errorf("the pairing string is shown %d times", n)
	}
	log, err := os.ReadFile(filepath.Join(p.dir, ".colab-relay", "executor.log"))
	must(t, err)
	for name, text := range map[string]string{"stderr": p.errs.String(), "log": string(log)} {
		if strings.Contains(text, p.secret.Reveal()) || strings.Contains(text, info.Pairing) {
			t.Errorf("%s shows the secret", name)
		}
	}
	if _, err := os.Stat(p.readyFile()); err == nil {
		t.Error("the ready file outlives the executor")
	}
	for _, want := range []string{"curl -s " + info.URL + "/health", filepath.Join(p.dir, ".colab-relay"), "stopped"} {
		if !strings.Contains(p.out.String(), want) {
			t.Errorf("the console does not show %q", want)
		}
	}
}

// Colab's stop button sends SIGINT twice within milliseconds, which must count as one.
func TestTwoImmediateInterruptsDrainAndTheNextExecutorKnowsTheRun(t *testing.T) {
	tier.Long(t)
	p := start(t, withEnv(envSecret+"="+longSecret))
	before := p.ready()
	id := p.started("x", "import time\nwhile True: time.sleep(0.01)")
	p.signal(syscall.SIGINT)
	p.signal(syscall.SIGINT)
	if code := p.exit(); code != 0 {
		t.Fatalf("exit code is %d", code)
	}
	again := start(t, in(p.dir), withEnv(envSecret+"="+longSecret))
	if info := again.ready(); info.InstanceID != before.InstanceID {
		t.Errorf("instance is %s, was %s", info.InstanceID, before.InstanceID)
	}
	e := call[contract.Execution](again, "GET", contract.PathExecutions+"/"+id, nil)
	if e.Status != contract.StatusInterrupted || printed(e) != "started\n" || e.Reason == "" {
		t.Errorf("the execution is %s (%s): %+v", e.Status, e.Reason, e.Events)
	}
}

func TestVisitorsFromOtherAddressesAreRefused(t *testing.T) {
	tier.Long(t)
	edge := ngroktest.Start(t)
	p := start(t, withEnv(envNgrokToken+"=token", envNgrokServer+"="+edge.Addr, envNgrokCA+"="+edge.CAFile), withArgs("--allow-cidr", "203.0.113.0/24"))
	info := p.ready()
	for url, want := range map[string]int{info.URL: 403, info.LocalURL: 200} {
		if status, body := get(url + contract.PathHealth); status != want {
			t.Errorf("%s answers %d %q, want %d", url, status, body, want)
		}
	}
}

// testdata/script/doctor.txtar has the doctor's other tests.
func TestDoctorReportsAStateDirThatAnotherExecutorUses(t *testing.T) {
	dir := t.TempDir()
	other, err := statedir.Open(dir)
	must(t, err)
	doctor := func() string {
		var out strings.Builder
		run(t.Context(), []string{"doctor", "--python", "/bin/false", "--state-dir", dir, "--listen", "127.0.0.1:0"}, env("HOME", t.TempDir()), nil, &out, &out)
		return out.String()
	}
	if out := doctor(); !strings.Contains(out, "fail  state     another executor uses "+dir+": stop it") {
		t.Errorf("while it is used, the doctor says:\n%s", out)
	}
	other.Close()
	if out := doctor(); !strings.Contains(out, "ok    state     "+dir+"\n") {
		t.Errorf("once it is free, the doctor says:\n%s", out)
	}
}

const longSecret = "a secret of exactly 32 bytes....."

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func TestTheSecretIsReadFromItsVariableOrFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(file, []byte(longSecret+"\n"), 0o600))
	for name, getenv := range map[string]func(string) string{
		"variable": env(envSecret, longSecret), "file": env(envSecretFile, file),
	} {
		c, err := parseConfig(nil, getenv, io.Discard)
		if err != nil || c.secret.Reveal() != longSecret || c.generated {
			t.Errorf("%s: generated %v, %v", name, c.generated, err)
		}
		for flag, fails := range map[string]bool{"--ready-file=~/x": false, "--ready-file=$HOME/x": true, "--allow-path=/home/${USER}": true, "--workdir=file:///tmp": true} {
			if c, err := parseConfig([]string{flag}, getenv, io.Discard); (err != nil) != fails || !fails && !filepath.IsAbs(c.readyFile) || strings.Contains(c.readyFile, "~") {
				t.Errorf("%s: %q, %v", flag, c.readyFile, err)
			}
		}
		if text := fmt.Sprintf("%v %+v %#v", c, c, c); strings.Contains(text, longSecret) {
			t.Errorf("%s: printed settings show the secret", name)
		}
	}
}

func (p *program) logged(text string) bool {
	p.t.Helper()
	log, err := os.ReadFile(filepath.Join(p.dir, ".colab-relay", "executor.log"))
	must(p.t, err)
	return strings.Contains(string(log), text)
}

// A program that writes to a pipe without a reader ends, so the executor must survive
// both the signal and the write.
func TestAHangUpEndsNeitherTheExecutorNorItsRun(t *testing.T) {
	tier.Long(t)
	read, write, err := os.Pipe()
	must(t, err)
	p := start(t, withStdout(write), func(p *program) { p.cmd.Stderr = write })
	write.Close()
	p.ready()
	id := p.started("long", "input('go on? ')\nprint('to the end')")
	read.Close()
	p.signal(syscall.SIGHUP)
	p.until("the hang-up is logged", func() bool { return p.logged("SIGHUP") })
	p.signal(syscall.SIGHUP)
	p.until("the run waits for input", func() bool {
		return call[contract.Execution](p, "GET", contract.PathExecutions+"/"+id, nil).Status == contract.StatusWaitingForInput
	})
	call[map[string]any](p, "POST", contract.PathExecutions+"/"+id+"/input", map[string]string{"text": "yes"})
	var e contract.Execution
	p.until("the run has ended", func() bool {
		e = call[contract.Execution](p, "GET", contract.PathExecutions+"/"+id+"?wait_seconds=5", nil)
		return e.Status.Finished()
	})
	if e.Status != contract.StatusSucceeded || !strings.Contains(printed(e), "to the end") {
		t.Errorf("the run ended %s: %+v", e.Status, e.Events)
	}

	kernel := call[contract.Kernel](p, "GET", contract.PathKernel, nil)
	must(t, syscall.Kill(kernel.PID, syscall.SIGKILL)) // its death writes a warning to the console
	p.until("the kernel's death is logged", func() bool { return p.logged("kernel died") })
	p.until("there is another kernel", func() bool {
		next := call[contract.Kernel](p, "GET", contract.PathKernel, nil)
		return next.KernelID != "" && next.KernelID != kernel.KernelID
	})
	if e := p.submit("after", "6*7", 20); resultOf(e) != "42" {
		t.Errorf("after the hang-up a run ends %s", e.Status)
	}
	p.signal(syscall.SIGTERM)
	if code := p.exit(); code != 0 {
		t.Errorf("exit code is %d", code)
	}
}

// A restarted executor has forgotten the nonces of earlier requests. It must refuse
// them because they name another start, even if they were signed for a future time.
func TestACapturedRequestDoesNothingAfterARestart(t *testing.T) {
	tier.Long(t)
	p := start(t)
	p.ready()
	secret := withEnv("EXECUTOR_SECRET=" + p.secret.Reveal())
	type captured struct {
		req      *http.Request
		exchange *auth.Exchange
	}
	var all []captured
	for _, ahead := range []time.Duration{0, contract.ClockSkew - 20*time.Second} {
		for _, path := range []string{contract.PathExecutions, contract.PathKernelRestart} {
			body := []byte(`{"request_id":"captured","code":"1","kernel_id":""}`)
			req, x := p.sealed("POST", path, body, time.Now().Add(ahead))
			all = append(all, captured{req, x})
		}
	}
	p.cmd.Process.Kill()
	p.exit()
	must(t, os.Remove(p.readyFile()))

	again := start(t, in(p.dir), secret)
	again.ready()
	before := call[contract.Kernel](again, "GET", contract.PathKernel, nil)
	for _, c := range all {
		c.req.URL.Host = strings.TrimPrefix(again.url, "http://")
		res, answer := again.send(c.req, c.exchange)
		var refused contract.ErrorBody
		must(t, json.Unmarshal(answer, &refused))
		if res.StatusCode != http.StatusConflict || refused.Error.Code != contract.CodeNewStart {
			t.Errorf("%s captured before the restart was answered %d %s", c.req.URL.Path, res.StatusCode, answer)
		}
	}
	if list := call[contract.ExecutionList](again, "GET", contract.PathExecutions, nil); len(list.Executions) != 0 {
		t.Errorf("it ran: %+v", list.Executions)
	}
	if after := call[contract.Kernel](again, "GET", contract.PathKernel, nil); after.KernelID != before.KernelID {
		t.Errorf("the kernel is %s, was %s", after.KernelID, before.KernelID)
	}
}
