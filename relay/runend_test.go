package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/hint"
	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
)

const endless = "import time\nfor i in range(600):\n  print('here', flush=True)\n  time.sleep(0.1)"

// program is the built relay, as a person starts it.
func program(ctx context.Context, getenv func(string) string, code string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, getenv("test relay"), "run", "-c", code)
	cmd.Env = append(os.Environ(), "COLAB_URL="+getenv("COLAB_URL"), "COLAB_SECRET="+getenv("COLAB_SECRET"))
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

func TestRunsEndWithWhoReadsThem(t *testing.T) {
	vm, getenv := realVM(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	t.Run("a broken pipe interrupts it there", func(t *testing.T) {
		var errs bytes.Buffer
		cmd := program(ctx, getenv, endless)
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
		if cmd.ProcessState.ExitCode() != 1 || !whole(`relay: stdout can't be written to \(.*broken pipe\): the run ended as interrupted on the VM\n`, errs.String()) {
			t.Errorf("%v %q", cmd.ProcessState, errs.String())
		}
		if code, out, errs := relay(t, getenv, "", "run", "-c", "print(i >= 0)"); code != 0 || out != "True\n" {
			t.Errorf("the kernel is held: %d %q %q", code, out, errs)
		}
	})
	t.Run("a second signal ends the wait, and says so", func(t *testing.T) {
		var out, errs output
		cmd := program(ctx, getenv, "import time\nprint('here', flush=True)\ntry: time.sleep(60)\nexcept KeyboardInterrupt:\n  print('not yet', flush=True)\n  time.sleep(4)")
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for _, said := range []string{"here", "interrupting"} {
			await(t, func() bool { return strings.Contains(out.String()+errs.String(), said) })
			cmd.Process.Signal(syscall.SIGINT)
		}
		cmd.Wait()
		if cmd.ProcessState.ExitCode() != 1 || !whole(`(?s).*relay: the run may still go on there, as \S+: a second signal ended the wait for it\n`, errs.String()) {
			t.Errorf("%v %q", cmd.ProcessState, errs.String())
		}
	})
	t.Run("a restart of the kernel is told as that", func(t *testing.T) {
		var out, errs output
		cmd := program(ctx, getenv, endless)
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		await(t, func() bool { return strings.Contains(out.String(), "here") })
		secret, err := auth.NewSecret(getenv("COLAB_SECRET"))
		if err != nil {
			t.Fatal(err)
		}
		c, err := client.New(client.Config{BaseURL: vm.Ready.LocalURL, Secret: secret})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		k, err := c.Kernel(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.RestartKernel(ctx, k.KernelID); err != nil {
			t.Fatal(err)
		}
		cmd.Wait()
		if cmd.ProcessState.ExitCode() != 1 || !whole(`(?s).*relay: the run ended as kernel_restarted: .*\n.*Run it again in the new kernel.*\n`, errs.String()) {
			t.Errorf("%v %q", cmd.ProcessState, errs.String())
		}
	})
	t.Run("a new VM in the middle is told", func(t *testing.T) {
		var at atomic.Pointer[string]
		at.Store(&vm.Ready.LocalURL)
		next := startExecutor(t, ctx, getenv("test executor"), getenv("COLAB_SECRET"))
		url := front(t, func() string { return *at.Load() }, func() bool { return false })
		set := &settings{getenv: environ("COLAB_URL", url, "COLAB_SECRET", getenv("COLAB_SECRET"))}
		var out, errs output
		ended := make(chan error)
		go func() {
			r := &remoteRun{std: streams{strings.NewReader(""), &out, &errs}, timeout: time.Minute, lastWait: time.Second}
			ended <- r.run(ctx, set, "", endless)
		}()
		await(t, func() bool { return strings.Contains(out.String(), "here") })
		at.Store(&next.Ready.LocalURL)
		var refused *contract.Error
		if err := <-ended; !errors.As(err, &refused) || refused.Code != contract.CodeNewInstance || hint.Person(err) == "" {
			t.Errorf("%v %q", err, errs.String())
		}
		_, out2, errs2 := relay(t, set.getenv, "", "run", "-c", "print(3)")
		if out2 != "3\n" || !whole(`relay: the kernel is a new one, on a new VM: .*\n`, errs2) {
			t.Errorf("the next run says nothing of it: %q %q", out2, errs2)
		}
	})
}
