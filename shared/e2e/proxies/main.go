// The proxies command checks the relay with real proxies: nginx and haproxy in front of an
// executor, squid and tinyproxy as those of a company, each with the configuration that Debian
// ships and the few lines that route to the executor. It runs them as its own children, on ports of
// loopback, and prints a table; the exit code is 1 if a check failed. -only NAME does one proxy.
//
// setup.sh has installed them. Start reading at trial.
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"colabrelay/shared/auth"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/freeport"
	"colabrelay/shared/stacks"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "proxies:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	only := flag.String("only", "", "the proxy to check; empty for all")
	flag.Parse()
	dir, err := os.MkdirTemp("", "colab-relay-proxies-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binaries, err := harness.Build(ctx, dir)
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	var trials []*trial
	for _, p := range proxies {
		if *only == "" || *only == p.name {
			t := &trial{proxy: p, relay: binaries.Relay, dir: filepath.Join(dir, p.name)}
			trials = append(trials, t)
			running.Go(func() { t.err = t.run(ctx, binaries.Executor) })
		}
	}
	running.Wait()
	var failed error
	fmt.Print("\n| proxy | status | silent for 150 s | a line after 70 s | 20 MB of output | put and get of 50 MB | a restart during a run | another port |\n|---|---|---|---|---|---|---|---|\n")
	for _, t := range trials {
		fmt.Printf("| %s | %s |\n", t.name, strings.Join(t.outcomes, " | "))
		failed = errors.Join(failed, t.err)
	}
	return failed
}

// trial is what one proxy is checked with. It has its own executor, because a kernel runs one thing
// at a time.
type trial struct {
	proxy
	relay, dir string
	listen     string   // the address of the proxy
	args       []string // of the proxy
	env        []string // of the relay
	process    *exec.Cmd
	outcomes   []string
	err        error
}

func (t *trial) run(ctx context.Context, executor string) error {
	if err := os.MkdirAll(t.dir, 0o700); err != nil {
		return err
	}
	secret := auth.GenerateSecret().Reveal()
	e, err := harness.StartExecutor(ctx, harness.ExecutorConfig{Binary: executor, Python: filepath.Join(stacks.Root(), ".python", "old", "bin", "python"), Dir: t.dir, Secret: secret})
	if err != nil {
		return err
	}
	defer e.Kill()
	target := strings.TrimPrefix(e.Ready.LocalURL, "http://")
	if t.listen, err = freeport.Address(); err != nil {
		return err
	}
	t.env = []string{"HOME=" + t.dir, "COLAB_SECRET=" + secret, "COLAB_URL=http://" + t.listen}
	if t.forward {
		address, certificate, end, err := newSecure(t.dir, target)
		if err != nil {
			return err
		}
		defer end()
		target = address
		t.env = append(t.env, "COLAB_URL=https://"+target, "HTTPS_PROXY=http://someone:hidden@"+t.listen, "SSL_CERT_FILE="+certificate)
	}
	if t.args, err = t.configure(t.dir, t.listen, target); err != nil {
		return err
	}
	if err := t.start(ctx); err != nil {
		return err
	}
	defer t.stop()
	another := t.otherPort
	if t.name != "squid" { // the only one that, as shipped, allows one port
		another = nil
	}
	return errors.Join(
		t.check(ctx, "status", func(ctx context.Context) error { _, err := t.command(ctx, "status"); return err }),
		t.check(ctx, "silent for 150 s", t.prints("import time; time.sleep(150); print('end')", "end\n")),
		t.check(ctx, "a line after 70 s", t.prints("import time; time.sleep(70); print('one')", "one\n")),
		t.check(ctx, "20 MB of output", t.prints("for n in range(200_000): print('x' * 99)", strings.Repeat(strings.Repeat("x", 99)+"\n", 200_000))),
		t.check(ctx, "put and get of 50 MB", t.transfer),
		t.check(ctx, "a restart during a run", t.restart),
		t.check(ctx, "another port", another),
	)
}

// check notes how long f took, unless it is nil.
func (t *trial) check(ctx context.Context, name string, f func(context.Context) error) error {
	if f == nil {
		t.outcomes = append(t.outcomes, "")
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	began := time.Now()
	err := f(limited)
	outcome := fmt.Sprintf("%.1f s", time.Since(began).Seconds())
	if err != nil {
		outcome = "FAILED"
		err = fmt.Errorf("%s: %s: %w", t.name, name, err)
	}
	t.outcomes = append(t.outcomes, outcome)
	fmt.Printf("%s: %s: %s\n", t.name, name, outcome)
	return err
}

// start starts the proxy and waits until it listens.
func (t *trial) start(ctx context.Context) error {
	t.process = exec.Command(t.program, t.args...)
	t.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := t.process.Start(); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	err := harness.Poll(limited, func() (bool, error) {
		conn, err := net.Dial("tcp", t.listen)
		if err == nil {
			conn.Close()
		}
		return err == nil, nil
	})
	if err != nil {
		t.stop()
	}
	return err
}

// stop ends the proxy with all its processes.
func (t *trial) stop() {
	_ = syscall.Kill(-t.process.Process.Pid, syscall.SIGKILL)
	_ = t.process.Wait()
}

// command runs a command of the relay and returns its output. What it wrote to stderr is in err.
func (t *trial) command(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, t.relay, args...)
	cmd.Env, cmd.Dir = t.env, t.dir
	var out, problems strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &problems
	err := cmd.Run()
	fmt.Print(problems.String())
	if err != nil {
		err = fmt.Errorf("%w: %.2000s%s", err, out.String(), problems.String())
	}
	return out.String(), err
}

// prints checks that code prints want.
func (t *trial) prints(code, want string) func(context.Context) error {
	return func(ctx context.Context) error {
		got, err := t.command(ctx, "run", "-c", code)
		if err == nil && got != want {
			err = fmt.Errorf("%d bytes came of %d", len(got), len(want))
		}
		return err
	}
}

// transfer sends 50 MB of noise there and back.
func (t *trial) transfer(ctx context.Context) error {
	noise := make([]byte, 50_000_000)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	there, back := filepath.Join(t.dir, "there.bin"), filepath.Join(t.dir, "back.bin")
	if err := os.WriteFile(there, noise, 0o600); err != nil {
		return err
	}
	if _, err := t.command(ctx, "put", there, "on-the-vm.bin"); err != nil {
		return err
	}
	if _, err := t.command(ctx, "get", "on-the-vm.bin", back); err != nil {
		return err
	}
	got, err := os.ReadFile(back)
	if err == nil && sha256.Sum256(got) != sha256.Sum256(noise) {
		err = errors.New("other bytes came back")
	}
	return err
}

// restart ends the proxy during a run and starts it again.
func (t *trial) restart(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() {
		ended <- t.prints("import time\nfor n in range(12): print(n, flush=True); time.sleep(1)", "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n")(ctx)
	}()
	<-time.After(4 * time.Second)
	t.stop()
	<-time.After(4 * time.Second)
	return errors.Join(t.start(ctx), <-ended)
}

// otherPort asks a company's proxy for a port that it does not allow. Proxy and status must be named.
func (t *trial) otherPort(ctx context.Context) error {
	t.env = append(t.env, "COLAB_URL=https://vm.test:8444")
	_, err := t.command(ctx, "status")
	if err == nil || !strings.Contains(err.Error(), "http://"+t.listen+" refuses") || !strings.Contains(err.Error(), "HTTP 403") || strings.Contains(err.Error(), "hidden") {
		return fmt.Errorf("the refusal is not named: %w", err)
	}
	return nil
}
