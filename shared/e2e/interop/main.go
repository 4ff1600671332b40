// The interop command compares the programs with those of others. Its part clients drives the
// relay with the official MCP clients: the two TypeScript SDKs, the two Python SDKs, the
// Inspector's command line and the conformance suite. All of them start the real relay, which
// talks to a real executor with a real kernel. Its part notebooks edits the sample notebooks of
// Jupyter's packages and checks them with these packages. It prints a line for each check and a
// table at the end; the exit code is 1 if a check failed. -only NAME does one part.
//
// setup.sh has installed the packages. What each SDK does is in node/checks.mjs and
// python/checks.py. Start reading at clients and at notebooks.
package main

import (
	"context"
	"errors"
	"flag"
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

// lab is what all parts share.
type lab struct {
	installed string // where setup.sh has put the packages
	drivers   string // the folder of this package
	relay     string
	env       []string // of a relay, and of the clients that start one
	report    report
}

func run(ctx context.Context) (err error) {
	only := flag.String("only", "", "the part to do, clients or notebooks; empty for both")
	flag.Parse()
	dir, err := os.MkdirTemp("", "colab-relay-interop-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	l := &lab{installed: filepath.Join(stacks.Root(), ".interop"), drivers: filepath.Join(stacks.Root(), "shared", "e2e", "interop")}
	parts := map[string]func(context.Context, string) error{"clients": l.mcp, "notebooks": l.notebooks}
	if *only != "" && parts[*only] == nil {
		return fmt.Errorf("-only %q: the parts are clients and notebooks", *only)
	}
	for _, name := range []string{"clients", "notebooks"} {
		if *only != "" && *only != name {
			continue
		}
		if err := parts[name](ctx, dir); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return l.report.finish()
}

// mcp drives the relay with the official MCP clients.
func (l *lab) mcp(ctx context.Context, dir string) (err error) {
	stop, err := l.start(ctx, dir, filepath.Join(stacks.Root(), ".python", "old", "bin", "python"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	l.env = append(l.env, "PATH="+filepath.Join(l.installed, "node", "node_modules", "node", "bin")+":"+os.Getenv("PATH"))
	for _, c := range l.clients() {
		l.drive(ctx, c)
	}
	l.inspect(ctx)
	return l.conform(ctx)
}

// start starts an executor whose kernel is an interpreter's, and sets the environment of a relay.
func (l *lab) start(ctx context.Context, dir, python string) (stop func() error, err error) {
	binaries, err := harness.Build(ctx, dir)
	if err != nil {
		return nil, err
	}
	secret := auth.GenerateSecret().Reveal()
	executor, err := harness.StartExecutor(ctx, harness.ExecutorConfig{Binary: binaries.Executor, Python: python, Dir: dir, Secret: secret})
	if err != nil {
		return nil, err
	}
	l.relay, l.env = binaries.Relay, []string{"COLAB_URL=" + executor.Ready.LocalURL, "COLAB_SECRET=" + secret, "HOME=" + dir, "RELAY_STRUCTURED=on"}
	return func() error {
		stopping, cancel := context.WithTimeout(context.Background(), 15*time.Second)
		defer cancel()
		return executor.Stop(stopping)
	}, nil
}
