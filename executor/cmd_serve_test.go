package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"colabrelay/executor/console"
	"colabrelay/executor/tunnel/ngroktest"
	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

func TestHealthAnswersBeforeTheKernelIsReadyAndSubmitsWait(t *testing.T) {
	tier.Long(t)
	p := start(t, withEnv(envSecret+"="+longSecret))
	p.until("the console shows the local URL", func() bool { return p.localURL() != "" })
	if status, body := get(p.localURL() + contract.PathHealth); status != 200 || !strings.Contains(body, `"protocol":4`) {
		t.Fatalf("health is %d %s", status, body)
	}
	p.url, p.secret = p.localURL(), secretOf(t, longSecret)
	if e := p.submit("early", "6*7", 40); e.Status != contract.StatusSucceeded {
		t.Errorf("a submit before the kernel was ready ended %s: %s", e.Status, e.Reason)
	}
}

func secretOf(t *testing.T, text string) auth.Secret {
	t.Helper()
	s, err := auth.NewSecret(text)
	must(t, err)
	return s
}

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

func TestAGivenSecretIsNeitherShownNorPassedToTheKernel(t *testing.T) {
	tier.Long(t)
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
		t.Errorf("the console shows the secret:\n%s", all)
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

// This code ignores interrupts, so that draining takes its full time.
const stubborn = "import time\nwhile True:\n  try: time.sleep(60)\n  except KeyboardInterrupt: pass"

func TestStubbornCodeDoesNotDelayTheShutdown(t *testing.T) {
	tier.Long(t)
	p := start(t)
	p.ready()
	p.started("x", stubborn)
	p.signal(syscall.SIGTERM)
	if code := p.exit(); code != 0 {
		t.Errorf("exit code is %d\n%s", code, p.errs)
	}
}

func TestASecondSignalAfterASecondStopsImmediately(t *testing.T) {
	tier.Long(t)
	p := start(t)
	p.ready()
	p.started("x", stubborn)
	p.signal(syscall.SIGINT)
	select {
	case <-time.After(secondSignal + 200*time.Millisecond):
	case <-p.ended:
		t.Fatal("it ended before the second signal: the test shows nothing")
	}
	p.signal(syscall.SIGINT)
	if code := p.exit(); code != 1 {
		t.Errorf("exit code is %d", code)
	}
	if _, err := os.Stat(p.readyFile()); err == nil {
		t.Error("the ready file outlives the executor")
	}
}

func TestAShutdownRequestIsAnsweredAndStopsTheExecutor(t *testing.T) {
	tier.Long(t)
	p := start(t)
	p.ready()
	if got := call[contract.Shutdown](p, "POST", contract.PathShutdown, nil); got.Status == "" {
		t.Errorf("answer is %+v", got)
	}
	if code := p.exit(); code != 0 {
		t.Errorf("exit code is %d", code)
	}
}

// The caller repeats its request from the last offset, as a relay does.
func TestAWaitingCallerLearnsOfTheShutdown(t *testing.T) {
	tier.Long(t)
	p := start(t)
	p.ready()
	id := p.started("x", "import time\nwhile True: time.sleep(0.01)")
	learned := make(chan contract.Execution, 1)
	go func() {
		e := contract.Execution{NextOffset: 1}
		for !e.Status.Finished() || e.Status == "" {
			e = call[contract.Execution](p, "GET", fmt.Sprintf("%s/%s?offset=%d&wait_seconds=50", contract.PathExecutions, id, e.NextOffset), nil)
		}
		learned <- e
	}()
	p.until("the kernel is busy", func() bool {
		return call[contract.Kernel](p, "GET", contract.PathKernel, nil).Status == contract.KernelBusy
	})
	p.signal(syscall.SIGTERM)
	if e := within.Receive(t, "the caller's answer", learned); e.Status != contract.StatusInterrupted {
		t.Errorf("the caller learned the status %s", e.Status)
	}
	p.exit()
}

// A console that is read slowly gets the fault last, where a person looks for it.
func TestTheFaultIsTheLastThingOnTheConsole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var shown bytes.Buffer
		out, errs := console.New(slowWriter{&shown}), console.New(&shown)
		for range 3 {
			fmt.Fprintln(out, "notice")
		}
		endConsole(out, errs, errors.New("fault"))
		if want := "notice\nnotice\nnotice\nexecutor: fault\n"; shown.String() != want {
			t.Errorf("the console shows %q, want %q", shown.String(), want)
		}
	})
}

// slowWriter needs a while for each write.
type slowWriter struct{ io.Writer }

func (w slowWriter) Write(p []byte) (int, error) {
	<-time.After(50 * time.Millisecond)
	return w.Writer.Write(p)
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

// An orphaned cloudflared would keep the public URL.
func TestCloudflaredDiesWithAKilledExecutor(t *testing.T) {
	folder := t.TempDir()
	note := filepath.Join(folder, "pid")
	script := "#!/bin/sh\necho $$ >" + note + ".new && mv " + note + ".new " + note + " && exec sleep 600\n"
	must(t, os.WriteFile(filepath.Join(folder, "cloudflared"), []byte(script), 0o700))
	p := start(t, withEnv("PATH="+folder+":"+os.Getenv("PATH")), withArgs("--tunnel", "cloudflared"))
	var pid int
	p.until("cloudflared runs", func() bool {
		raw, err := os.ReadFile(note)
		if err != nil {
			return false
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(raw)))
		return err == nil
	})
	defer func() { _ = syscall.Kill(pid, syscall.SIGKILL) }() // it has ended, unless the test failed
	must(t, p.cmd.Process.Kill())
	<-p.ended
	within.Until(t, "cloudflared has ended too", func() bool { return !runs(pid) })
}

// runs says whether a process runs. A dead process is a zombie until its parent reaps it.
func runs(pid int) bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(raw), ") ")
	return !strings.HasPrefix(after, "Z")
}
