package main

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"colabrelay/relay/config/configtest"
	"colabrelay/shared/auth"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

// The script of `colab-relay run` cannot close a pipe.
func TestABrokenPipeInterruptsTheCode(t *testing.T) {
	tier.Long(t)
	binary, err := buildExecutor()
	if err != nil {
		t.Fatal(err)
	}
	configtest.Home(t)
	ctx, cancel := context.WithTimeout(t.Context(), within.Limit)
	defer cancel()
	secret := auth.GenerateSecret().Reveal()
	e, err := harness.StartExecutor(ctx, harness.ExecutorConfig{Binary: binary, Python: stacks.Old(t).Python, Dir: t.TempDir(), Secret: secret})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Stop(ctx)
	relayRun := func(code string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, "colab-relay", "run", "-c", code) // this test program; see TestMain
		cmd.Env = append(os.Environ(), "COLAB_URL="+e.Ready.LocalURL, "COLAB_SECRET="+secret)
		cmd.WaitDelay = 5 * time.Second
		return cmd
	}
	var errs bytes.Buffer
	cmd := relayRun("import time\nfor i in range(600):\n  print('here', flush=True)\n  time.sleep(0.1)")
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	out.Close()
	cmd.Wait()
	want := `^colab-relay: cannot write to stdout \(.*broken pipe\): the run ended as interrupted on the VM\n$`
	if cmd.ProcessState.ExitCode() != 1 || !regexp.MustCompile(want).MatchString(errs.String()) {
		t.Errorf("%v %q", cmd.ProcessState, errs.String())
	}
	if got, err := relayRun("print(i >= 0)").Output(); err != nil || strings.TrimSpace(string(got)) != "True" {
		t.Errorf("the kernel is still busy: %v %q", err, got)
	}
}
