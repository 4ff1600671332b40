// The demo command shows the main job on this machine: it starts an executor
// with a real kernel, drives the relay over stdio as an MCP host would, and
// prints the session. All answers are real. The exit code is 0 when every part
// gave the expected result, otherwise 1.
//
// With -page it shows the work in Colab's page instead: a stand-in of the page in a real
// Chromium, and an executor that is started through it.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"colabrelay/shared/e2e/browser"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
)

func main() {
	if asked, err := browser.Opener(os.Args); asked {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	inPage := flag.Bool("page", false, "show the work in Colab's page")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, *inPage); err != nil {
		fmt.Fprintln(os.Stderr, "\ndemo:", err)
		stop()
		os.Exit(1)
	}
}

// demo is the state that the parts of the demo share.
type demo struct {
	*transcript
	binaries harness.Binaries
	python   string
	dir      string // holds all files of the demo; kept at the end
	executor *harness.Executor
	before   []*harness.Executor // executors that were killed
	host     *harness.Host
	began    time.Time
	page     pageStage // with -page
}

func run(ctx context.Context, out io.Writer, inPage bool) error {
	root := stacks.Root()
	dir, err := os.MkdirTemp("", "colab-relay-demo-")
	if err != nil {
		return err
	}
	d := &demo{
		transcript: newTranscript(out),
		binaries: harness.Binaries{
			Executor: filepath.Join(root, "bin", "executor"),
			Relay:    filepath.Join(root, "bin", "colab-relay"),
		},
		python: filepath.Join(root, ".python", "old", "bin", "python"),
		dir:    dir,
		began:  time.Now(),
	}
	defer d.close()
	parts := []func(context.Context) error{
		d.setUp, d.executorUp, d.hostConnects, d.probe, d.quickRuns, d.plot,
		d.longRun, d.endlessLoop, d.kernelDeath, d.notebook,
		d.upload, d.chunkedRun, d.anotherVM, d.resumed, d.alone, d.savedState, d.download, d.cost,
	}
	if inPage {
		parts = []func(context.Context) error{
			d.setUp, d.pageUp, d.pageConnects, d.pageNotebook, d.pageLost, d.pageExecutor, d.pageSecrets, d.pagePicture,
		}
	}
	for _, part := range parts {
		if err := part(ctx); err != nil {
			return fmt.Errorf("part %d: %w", d.part, err)
		}
	}
	return nil
}

func (d *demo) close() {
	if d.host != nil {
		d.host.Close()
	}
	d.page.close()
	if d.executor != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
		defer cancel()
		_ = d.executor.Stop(ctx)
	}
}
