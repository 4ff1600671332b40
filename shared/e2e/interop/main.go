// The interop command drives the relay with the official MCP clients: the two TypeScript
// SDKs, the two Python SDKs, the Inspector's command line and the conformance suite. All of
// them start the real relay, which talks to a real executor with a real kernel. It prints a
// line for each check and a table at the end; the exit code is 1 if a check failed.
//
// setup.sh has installed the clients. What each SDK does is in node/checks.mjs and
// python/checks.py. Start reading at clients.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"colabrelay/shared/auth"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
		stop()
		os.Exit(1)
	}
}

// lab is what all clients share.
type lab struct {
	installed string // where setup.sh has put the clients
	drivers   string // the folder of this package
	relay     string
	env       []string // of a relay, and of the clients that start one
	report    report
}

func run(ctx context.Context) (err error) {
	root := stacks.Root()
	dir, err := os.MkdirTemp("", "colab-relay-interop-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binaries, err := harness.Build(ctx, dir)
	if err != nil {
		return err
	}
	secret := auth.GenerateSecret().Reveal()
	executor, err := harness.StartExecutor(ctx, harness.ExecutorConfig{
		Binary: binaries.Executor, Python: filepath.Join(root, ".python", "old", "bin", "python"), Dir: dir, Secret: secret,
	})
	if err != nil {
		return err
	}
	defer func() {
		stopping, cancel := context.WithTimeout(context.Background(), 15*time.Second)
		defer cancel()
		err = errors.Join(err, executor.Stop(stopping))
	}()
	l := &lab{installed: filepath.Join(root, ".interop"), drivers: filepath.Join(root, "shared", "e2e", "interop"), relay: binaries.Relay}
	l.env = []string{
		"COLAB_URL=" + executor.Ready.LocalURL, "COLAB_SECRET=" + secret, "HOME=" + dir,
		"PATH=" + filepath.Join(l.installed, "node", "node_modules", "node", "bin") + ":" + os.Getenv("PATH"),
	}
	for _, c := range l.clients() {
		l.drive(ctx, c)
	}
	l.inspect(ctx)
	if err := l.conform(ctx); err != nil {
		return err
	}
	return l.report.finish()
}
