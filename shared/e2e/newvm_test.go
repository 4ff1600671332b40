package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"colabrelay/executor/tunnel/ngroktest"
	"colabrelay/shared/e2e/harness"
)

// A VM at the tunnel's address ends, and another one with the same domain and secret takes its
// place: the same relay uses it without a new pairing, and says so.
func TestNewVMAtTheSameDomainNeedsNoEdit(t *testing.T) {
	l, vms, first := pairedOnce(t)
	paired := pairings(t, l)
	h := l.host()
	want(t, quick(t, h, "kept = 1\nkept"), map[string]any{"success": true, "result": "1", "warning": nil})

	first.Kill()
	second := vms.newVM()
	if second.Ready.URL != first.Ready.URL || second.Ready.InstanceID == first.Ready.InstanceID || second.Ready.URL == second.Ready.LocalURL {
		t.Fatalf("first VM %+v, second %+v: want the same URL of the tunnel and different instances", first.Ready, second.Ready)
	}
	a := quick(t, h, "'kept' in globals()")
	want(t, a, map[string]any{"success": true, "result": "False"})
	saysNewVM(t, a)
	want(t, quick(t, h, "2"), map[string]any{"success": true, "warning": nil})
	if pairings(t, l) != paired {
		t.Error("the list of runtimes changed")
	}
}

// pairedOnce returns a laptop with its own secret, and a VM with that secret and a domain,
// paired by its address.
func pairedOnce(t *testing.T) (laptop, colab, *harness.Executor) {
	t.Helper()
	l := newLaptop(t)
	l.relay("init")
	vms := colab{t, ngroktest.Start(t), ownSecret(t, l), []string{"--domain", "fixed.ngrok-free.app"}}
	first := vms.newVM()
	l.relay("pair", first.Ready.URL)
	return l, vms, first
}

// saysNewVM fails if an answer does not warn of a new kernel on a new VM.
func saysNewVM(t *testing.T, a harness.Answer) {
	t.Helper()
	if said := a.String("warning"); !strings.Contains(said, "a new kernel on a new VM") {
		t.Errorf("the warning is %q", said)
	}
}

// ownSecret returns the secret that relay init created and prints again.
func ownSecret(t *testing.T, l laptop) string {
	t.Helper()
	found := regexp.MustCompile(`(?m)^ +EXECUTOR_SECRET +(\S+)$`).FindStringSubmatch(l.relay("init"))
	if found == nil {
		t.Fatal("relay init prints no secret")
	}
	return found[1]
}

// pairings returns the content of the file with the paired runtimes.
func pairings(t *testing.T, l laptop) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(l.dir, "config", "colab-relay", "runtimes.json"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
