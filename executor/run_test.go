package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"colabrelay/executor/tunnel/ngroktest"
	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
)

func TestHealthAnswersBeforeTheKernelIsReadyAndSubmitsWait(t *testing.T) {
	p := start(t, withEnv(envSecret+"="+longSecret))
	p.eventually(func() bool { return p.localURL() != "" })
	if status, body := get(p.localURL() + contract.PathHealth); status != 200 || !strings.Contains(body, `"protocol":2`) {
		t.Fatalf("health is %d %s", status, body)
	}
	if _, err := os.Stat(p.readyFile()); err == nil {
		t.Fatal("the kernel was ready before health was asked: the test shows nothing")
	}
	p.url, p.secret = p.localURL(), secretOf(t, longSecret)
	if e := p.submit("early", "6*7", 40); e.Status != contract.StatusSucceeded {
		t.Errorf("a submit before the kernel is ready ends %s: %s", e.Status, e.Reason)
	}
}

func secretOf(t *testing.T, text string) auth.Secret {
	t.Helper()
	s, err := auth.NewSecret(text)
	must(t, err)
	return s
}

func TestAGeneratedSecretIsShownOnceAndNowhereElse(t *testing.T) {
	p := start(t)
	info := p.ready()
	if info.PID != p.cmd.Process.Pid || info.URL != info.LocalURL || info.KeyID != p.secret.KeyID() || info.InstanceID == "" {
		t.Errorf("ready file is %+v", info)
	}
	if st, err := os.Stat(p.readyFile()); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("ready file: %v, %v", st.Mode(), err)
	}
	p.submit("x", "1", 20)
	p.signal(syscall.SIGTERM)
	if code, _ := p.exit(); code != 0 {
		t.Errorf("exit code is %d", code)
	}
	if n := strings.Count(p.out.String(), "paste this there:\n           "+info.Pairing+"\n"); n != 1 {
		t.Errorf("the pairing line is shown %d times", n)
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
			t.Errorf("the console does not tell %q", want)
		}
	}
}

func TestAGivenSecretIsNeverShownNorSeenByTheKernel(t *testing.T) {
	p := start(t, withEnv(envSecret+"="+longSecret, envNgrokToken+"=", "KAGGLE_USER_SECRETS_TOKEN=kaggle-token"))
	p.ready()
	e := p.submit("x", "import os; sorted(os.environ.items())", 20)
	if e.Status != contract.StatusSucceeded {
		t.Fatalf("status is %s", e.Status)
	}
	if seen := string(e.Events[0].Data["text/plain"]); strings.Contains(seen, longSecret) || strings.Contains(seen, "kaggle-token") {
		t.Error("the kernel's environment holds a secret")
	}
	p.signal(syscall.SIGTERM)
	p.exit()
	if all := p.out.String() + p.errs.String(); strings.Contains(all, longSecret) || strings.Contains(all, "relay pair") {
		t.Errorf("the console shows it:\n%s", all)
	}
}

// Colab's stop button sends SIGINT twice within milliseconds: that is one wish.
func TestTwoInterruptsAtOnceDrainAndTheNextExecutorRemembers(t *testing.T) {
	p := start(t, withEnv(envSecret+"="+longSecret))
	before := p.ready()
	id := p.begun("x", "import time\nwhile True: time.sleep(0.01)")
	p.signal(syscall.SIGINT)
	p.signal(syscall.SIGINT)
	if code, took := p.exit(); code != 0 || took > 10*time.Second {
		t.Fatalf("exit code is %d after %v", code, took)
	}
	again := start(t, in(p.dir), withEnv(envSecret+"="+longSecret))
	if info := again.ready(); info.InstanceID != before.InstanceID {
		t.Errorf("instance is %s, was %s", info.InstanceID, before.InstanceID)
	}
	e := call[contract.Execution](again, "GET", contract.PathExecutions+"/"+id, nil)
	if e.Status != contract.StatusInterrupted || e.Events[0].Text != "begun\n" || e.Reason == "" {
		t.Errorf("the execution is %s (%s): %+v", e.Status, e.Reason, e.Events)
	}
}

// The code swallows interrupts, so that draining takes its full time.
const stubborn = "import time\nwhile True:\n  try: time.sleep(60)\n  except KeyboardInterrupt: pass"

func TestStubbornCodeDoesNotHoldTheEndUp(t *testing.T) {
	p := start(t)
	p.ready()
	p.begun("x", stubborn)
	p.signal(syscall.SIGTERM)
	if code, took := p.exit(); code != 0 || took > 10*time.Second {
		t.Errorf("exit code is %d after %v\n%s", code, took, p.errs)
	}
}

func TestASecondSignalAfterASecondEndsAtOnce(t *testing.T) {
	p := start(t)
	p.ready()
	p.begun("x", stubborn)
	p.signal(syscall.SIGINT)
	select {
	case <-time.After(secondSignal + 200*time.Millisecond):
	case <-p.ended:
		t.Fatal("ended before the second signal: the test shows nothing")
	}
	p.signal(syscall.SIGINT)
	if code, took := p.exit(); code != 1 || took > 2*time.Second {
		t.Errorf("exit code is %d after %v", code, took)
	}
	if _, err := os.Stat(p.readyFile()); err == nil {
		t.Error("the ready file outlives the executor")
	}
}

func TestAnInterruptThatNohupIgnoresStaysIgnored(t *testing.T) {
	p := start(t, ignoringInterrupts)
	p.ready()
	p.signal(syscall.SIGINT)
	if e := p.submit("x", "1", 20); e.Status != contract.StatusSucceeded {
		t.Errorf("after the interrupt a run is %s", e.Status)
	}
	p.signal(syscall.SIGTERM)
	if code, _ := p.exit(); code != 0 {
		t.Errorf("exit code is %d", code)
	}
}

func TestShutdownByRequestIsAnsweredAndEnds(t *testing.T) {
	p := start(t)
	p.ready()
	if got := call[contract.Shutdown](p, "POST", contract.PathShutdown, nil); got.Status == "" {
		t.Errorf("answer is %+v", got)
	}
	if code, took := p.exit(); code != 0 || took > 10*time.Second {
		t.Errorf("exit code is %d after %v", code, took)
	}
}

// As a relay does: it asks again from where the last answer ended.
func TestAWaitingCallerIsToldOfTheEnd(t *testing.T) {
	p := start(t)
	p.ready()
	id := p.begun("x", "import time\nwhile True: time.sleep(0.01)")
	told := make(chan contract.Execution, 1)
	go func() {
		e := contract.Execution{NextOffset: 1}
		for !e.Status.Finished() || e.Status == "" {
			e = call[contract.Execution](p, "GET", fmt.Sprintf("%s/%s?offset=%d&wait_seconds=50", contract.PathExecutions, id, e.NextOffset), nil)
		}
		told <- e
	}()
	p.eventually(func() bool {
		return call[contract.Kernel](p, "GET", contract.PathKernel, nil).Status == contract.KernelBusy
	})
	p.signal(syscall.SIGTERM)
	select {
	case e := <-told:
		if e.Status != contract.StatusInterrupted {
			t.Errorf("the caller is told %s", e.Status)
		}
	case <-time.After(patience):
		t.Fatal("the caller is told nothing")
	}
	p.exit()
}

func TestAConsoleNobodyReadsDoesNotHoldTheProgram(t *testing.T) {
	r, w, err := os.Pipe()
	must(t, err)
	defer r.Close()
	defer w.Close()
	if _, err := w.Write(make([]byte, 65536)); err != nil { // a pipe's whole room
		t.Fatal(err)
	}
	p := start(t, withStdout(w))
	p.ready()
	if e := p.submit("x", "1", 20); e.Status != contract.StatusSucceeded {
		t.Errorf("a run is %s", e.Status)
	}
	p.signal(syscall.SIGTERM)
	if code, took := p.exit(); code != 0 || took > 10*time.Second {
		t.Errorf("exit code is %d after %v", code, took)
	}
}

func TestASecondExecutorOnTheSameStateIsRefused(t *testing.T) {
	p := start(t)
	p.ready()
	second := start(t, in(p.dir), withArgs("--ready-file", filepath.Join(t.TempDir(), "r")))
	if code, _ := second.exit(); code != 1 || !strings.Contains(second.errs.String(), "another executor") {
		t.Errorf("exit code is %d: %s", code, second.errs)
	}
	if _, err := os.Stat(p.readyFile()); err != nil {
		t.Errorf("it took the first one's ready file away: %v", err)
	}
}

func TestFaultsAtStartAreOneClearLine(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer taken.Close()
	broken := t.TempDir()
	must(t, os.WriteFile(filepath.Join(broken, "zmq.py"), []byte("raise SystemExit('boiler burst')"), 0o600))
	for name, tc := range map[string]struct {
		options []option
		code    int
		want    string
	}{
		"broken kernel":  {[]option{withEnv("PYTHONPATH=" + broken)}, 1, "boiler burst"},
		"no ipykernel":   {[]option{withArgs("--python", "/bin/false")}, 1, "pip install ipykernel"},
		"port taken":     {[]option{withArgs("--listen", taken.Addr().String())}, 1, "address already in use"},
		"unknown flag":   {[]option{withArgs("--nonsense")}, 2, "-nonsense"},
		"short secret":   {[]option{withEnv(envSecret + "=short")}, 2, envSecret},
		"unknown tunnel": {[]option{withArgs("--tunnel", "carrier-pigeon")}, 2, "cloudflared or none"},
		"no cloudflared": {[]option{withArgs("--tunnel", "cloudflared"), withEnv("PATH=" + withoutCloudflared(t))}, 1, "install it from"},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, tc.options...)
			code, _ := p.exit()
			lines := strings.Split(strings.TrimSpace(p.errs.String()), "\n")
			if code != tc.code || len(lines) != 1 || !strings.Contains(lines[0], tc.want) {
				t.Errorf("exit code is %d, stderr:\n%s", code, p.errs)
			}
		})
	}
}

// withoutCloudflared is a PATH that leads to python3 only.
func withoutCloudflared(t *testing.T) string {
	t.Helper()
	python, err := exec.LookPath("python3")
	must(t, err)
	folder := t.TempDir()
	must(t, os.Symlink(python, filepath.Join(folder, "python3")))
	return folder
}

func TestThroughTheTunnel(t *testing.T) {
	edge := ngroktest.Start(t)
	p := start(t, withEnv(envNgrokToken+"=token", envNgrokServer+"="+edge.Addr, envNgrokCA+"="+edge.CAFile))
	info := p.ready()
	if info.URL == info.LocalURL || !strings.Contains(p.out.String(), " "+info.Pairing+"\n") {
		t.Errorf("ready file is %+v", info)
	}
	if status, _ := get(info.URL + contract.PathHealth); status != 200 {
		t.Errorf("health through the tunnel is %d", status)
	}
	if e := p.submit("x", "1", 20); e.Status != contract.StatusSucceeded {
		t.Errorf("a run through the tunnel is %s", e.Status)
	}
	p.signal(syscall.SIGTERM)
	if code, took := p.exit(); code != 0 || took > 10*time.Second {
		t.Errorf("exit code is %d after %v", code, took)
	}
}

func TestARefusedTokenEndsItWithOneLine(t *testing.T) {
	edge := ngroktest.Start(t)
	edge.RefuseToken("ERR_NGROK_105")
	p := start(t, withEnv(envNgrokToken+"=bad-token", envNgrokServer+"="+edge.Addr, envNgrokCA+"="+edge.CAFile))
	code, _ := p.exit()
	text := strings.TrimSpace(p.errs.String())
	if code != 1 || strings.Contains(text, "\n") || !strings.Contains(text, "ERR_NGROK_105") || strings.Contains(text, "bad-token") {
		t.Errorf("exit code is %d, stderr:\n%s", code, text)
	}
}

func TestVisitorsFromElsewhereAreTurnedAway(t *testing.T) {
	edge := ngroktest.Start(t)
	p := start(t, withEnv(envNgrokToken+"=token", envNgrokServer+"="+edge.Addr, envNgrokCA+"="+edge.CAFile), withArgs("--allow-cidr", "203.0.113.0/24"))
	info := p.ready()
	for url, want := range map[string]int{info.URL: 403, info.LocalURL: 200} {
		if status, body := get(url + contract.PathHealth); status != want {
			t.Errorf("%s answers %d %q, want %d", url, status, body, want)
		}
	}
}

// An orphan would keep the public URL.
func TestAKilledExecutorTakesCloudflaredWithIt(t *testing.T) {
	folder := t.TempDir()
	note := filepath.Join(folder, "pid")
	script := "#!/bin/sh\necho $$ >" + note + ".new && mv " + note + ".new " + note + " && exec sleep 600\n"
	must(t, os.WriteFile(filepath.Join(folder, "cloudflared"), []byte(script), 0o700))
	p := start(t, withEnv("PATH="+folder+":"+os.Getenv("PATH")), withArgs("--tunnel", "cloudflared"))
	var pid int
	p.eventually(func() bool {
		raw, err := os.ReadFile(note)
		if err != nil {
			return false
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(raw)))
		return err == nil
	})
	defer func() { _ = syscall.Kill(pid, syscall.SIGKILL) }() // it is gone, unless the test failed
	must(t, p.cmd.Process.Kill())
	<-p.ended
	deadline := time.After(patience)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for runs(pid) {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("cloudflared outlives the executor")
		}
	}
}

// runs says whether a process lives; where nobody reaps, a dead one stays a zombie.
func runs(pid int) bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(raw), ") ")
	return !strings.HasPrefix(after, "Z")
}

func TestVersionIsOneLine(t *testing.T) {
	var out strings.Builder
	if code := run(t.Context(), []string{"version"}, env(), nil, &out, nil); code != 0 || out.String() != version+"\n" {
		t.Errorf("exit code is %d, output %q", code, out.String())
	}
}
