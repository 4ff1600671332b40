package e2e

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"colabrelay/executor/tunnel/ngroktest"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
	"colabrelay/shared/within"
)

// A VM at the tunnel's address ends, and another one with the same domain and secret takes its
// place: the same relay uses it without a new pairing, and says so.
func TestNewVMAtTheSameDomainNeedsNoEdit(t *testing.T) {
	l := newLaptop(t)
	l.relay("init")
	own := regexp.MustCompile(`(?m)^ +EXECUTOR_SECRET +(\S+)$`).FindStringSubmatch(l.relay("init")) // which prints it again
	if own == nil {
		t.Fatal("relay init prints no secret")
	}
	edge := ngroktest.Start(t)
	newVM := func() *harness.Executor {
		return startExecutor(t, harness.ExecutorConfig{Secret: own[1], Args: []string{"--domain", "fixed.ngrok-free.app"}, Env: ngrokOf(edge)})
	}
	first := newVM()
	l.relay("pair", first.Ready.URL)
	paired := readAll(t, filepath.Join(l.dir, "config", "colab-relay", "runtimes.json"))
	h := startHost(t, "", harness.HostConfig{Dir: l.dir})
	want(t, quick(t, h, "kept = 1\nkept"), map[string]any{"success": true, "result": "1", "warning": nil})

	first.Kill()
	second := newVM()
	if second.Ready.URL != first.Ready.URL || second.Ready.InstanceID == first.Ready.InstanceID || second.Ready.URL == second.Ready.LocalURL {
		t.Fatalf("first VM %+v, second %+v: want the same URL of the tunnel and different instances", first.Ready, second.Ready)
	}
	a := quick(t, h, "'kept' in globals()")
	want(t, a, map[string]any{"success": true, "result": "False"})
	if said := a.String("warning"); !strings.Contains(said, "a new kernel on a new VM") {
		t.Errorf("the warning is %q", said)
	}
	want(t, quick(t, h, "2"), map[string]any{"success": true, "warning": nil})
	if readAll(t, filepath.Join(l.dir, "config", "colab-relay", "runtimes.json")) != paired {
		t.Error("the list of runtimes changed")
	}
}

// ngrokOf is the environment of an executor that reaches an edge of ngrok.
func ngrokOf(edge *ngroktest.Edge) []string {
	return []string{"NGROK_AUTHTOKEN=a-token-of-the-test", "COLAB_RELAY_NGROK_SERVER=" + edge.Addr, "COLAB_RELAY_NGROK_CA=" + edge.CAFile}
}

func TestRefusedTokenEndsTheExecutorWithOneLine(t *testing.T) {
	edge := ngroktest.Start(t)
	edge.RefuseToken("ERR_NGROK_105")
	_, err := harness.StartExecutor(within.Context(t), harness.ExecutorConfig{
		Binary: binaries.Executor, Python: stacks.Old(t).Python, Dir: t.TempDir(), Secret: secret, Env: ngrokOf(edge),
	})
	if err == nil {
		t.Fatal("the executor became ready")
	}
	if !strings.Contains(err.Error(), "ERR_NGROK_105") || strings.Contains(err.Error(), "a-token-of-the-test") {
		t.Errorf("it ended with: %v", err)
	}
}
