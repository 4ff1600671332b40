package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"colabrelay/executor/tunnel/ngroktest"
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
