package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/executor/tunnel/ngroktest"
	"colabrelay/relay/vm/colabcli/colabclitest"
)

// A person starts a VM by Google's command line, which colabclitest imitates, runs code on it and
// stops it. The executor and its kernel are real.
func TestAVMIsStartedUsedAndStopped(t *testing.T) {
	google, edge, bin := colabclitest.Install(t), ngroktest.Start(t), t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\nCOLAB_RELAY_NGROK_SERVER=%s COLAB_RELAY_NGROK_CA='%s' exec '%s' \"$@\"\n", edge.Addr, edge.CAFile, google.Path)
	must(t, os.WriteFile(filepath.Join(bin, "colab"), []byte(script), 0o700))
	l := newLaptop(t)
	l.env = []string{"PATH=" + bin + ":/usr/bin:/bin", "NGROK_AUTHTOKEN=a-token-of-the-test"}
	l.relay("vm", "login", "--yes")
	l.relay("vm", "up", "--gpu", "T4", "--executor", binaries.Executor)
	running := google.Endpoints()
	if out := l.relay("vm", "list"); len(running) != 1 || !strings.Contains(out, "T4") {
		t.Errorf("%q run; listed:\n%s", running, out)
	}
	if out := l.relay("run", "-c", "print(6 * 7)"); out != "42\n" {
		t.Errorf("run printed %q", out)
	}
	l.relay("vm", "down", "vm")
	if left := google.Endpoints(); len(left) > 0 {
		t.Errorf("after down, %q run", left)
	}
}
