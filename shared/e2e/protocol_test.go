package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

// nextProtocol builds both programs as they would be with the next protocol's number.
func nextProtocol(t *testing.T) harness.Binaries {
	t.Helper()
	const file = "shared/contract/contract.go"
	dir, path := t.TempDir(), filepath.Join(stacks.Root(), file)
	text, err := os.ReadFile(path)
	must(t, err)
	number := "const Protocol = %d"
	changed := strings.Replace(string(text), fmt.Sprintf(number, contract.Protocol), fmt.Sprintf(number, contract.Protocol+1), 1)
	if changed == string(text) {
		t.Fatalf("%s has no line %q", file, fmt.Sprintf(number, contract.Protocol))
	}
	next, overlay := filepath.Join(dir, "contract.go"), filepath.Join(dir, "overlay.json")
	must(t, os.WriteFile(next, []byte(changed), 0o600))
	replaced, err := json.Marshal(map[string]map[string]string{"Replace": {path: next}})
	must(t, err)
	must(t, os.WriteFile(overlay, replaced, 0o600))
	cmd := exec.CommandContext(within(t), "go", "build", "-overlay", overlay, "-trimpath", "-ldflags", "-s -w", "-o", dir+"/", "./relay", "./executor")
	cmd.Dir, cmd.Env = stacks.Root(), append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building the programs: %v\n%s", err, text)
	}
	return harness.Binaries{Executor: filepath.Join(dir, "executor"), Relay: filepath.Join(dir, "relay")}
}

// Two programs of different protocols: nothing runs, and the relay, of whichever protocol it is,
// says which program is older and how to update that one.
func TestProgramsOfTwoProtocolsRunNothingAndSayWhichIsOlder(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	next := nextProtocol(t)
	for _, test := range []struct {
		name, executor, relay string
		says                  []string
	}{
		{"an older relay", next.Executor, binaries.Relay, []string{
			fmt.Sprintf("the executor uses protocol %d and this relay protocol %d: the relay on this computer is older", contract.Protocol+1, contract.Protocol), "Update the relay on this computer",
		}},
		{"an older executor", binaries.Executor, next.Relay, []string{
			fmt.Sprintf("the executor uses protocol %d and this relay protocol %d: the executor on the VM is older", contract.Protocol, contract.Protocol+1), "Update the executor",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			e, err := harness.StartExecutor(within(t), harness.ExecutorConfig{Binary: test.executor, Secret: secret, Dir: dir, Python: stacks.Old(t).Python})
			must(t, err)
			defer e.Kill()
			cmd := exec.CommandContext(within(t), test.relay, "run", "-c", "open('ran', 'w')")
			cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "XDG_CONFIG_HOME="+t.TempDir(), "COLAB_URL="+e.Ready.LocalURL, "COLAB_SECRET="+secret)
			var said bytes.Buffer
			cmd.Stderr = &said
			if cmd.Run() == nil {
				t.Error("the code ran")
			}
			for _, part := range append(test.says, "the code was not run") {
				if !strings.Contains(said.String(), part) {
					t.Errorf("it says %q, want %q", &said, part)
				}
			}
			if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
				t.Error("the code ran")
			}
		})
	}
}
