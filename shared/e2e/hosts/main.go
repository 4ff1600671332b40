// The hosts command checks what the models of real MCP hosts get of the relay's answers. It runs
// Claude Code, Codex, Gemini CLI and OpenCode, which setup.sh has installed, with a model that
// follows a script: it calls the relay's tools, and each request shows what the host made of the
// answers. A proxy between host and relay records what the relay sent. The relay talks to a real
// executor with a real kernel. The last part waits until an idle Claude Code is woken by the end
// of a long run. The command prints a line for each check and a table at the end; the exit code
// is 1 if a check failed. -only NAME does one part, -keep FOLDER keeps all that was recorded. With
// -frameworks, the hosts are agents of frameworks, as docs/frameworks.md starts them.
//
// It must reach nothing but loopback: where the system allows it, all programs run in a network
// namespace of their own, and each host gets an environment and a home folder of its own. Start
// reading at supervise, then at talk.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"colabrelay/shared/auth"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == proxyWord {
		code, err := proxy(os.Args[2:], os.Stdin, os.Stdout)
		if err != nil {
			fmt.Fprintln(os.Stderr, "hosts:", err)
		}
		os.Exit(code)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		if !errors.Is(err, errReported) {
			fmt.Fprintln(os.Stderr, "hosts:", err)
		}
		stop()
		if errors.Is(err, errNoNamespace) {
			os.Exit(noLoopbackCode)
		}
		os.Exit(1)
	}
}

// errReported is a failure that the worker has printed, errNoNamespace a system that allows no
// network namespace, or none with a usable loopback interface.
var (
	errReported    = errors.New("the worker failed")
	errNoNamespace = errors.New("the system refuses one")
)

// noLoopbackCode is the exit code of a worker that could not raise its loopback interface.
const noLoopbackCode = 3

// wakePart is the part that waits for a long run.
const wakePart = "wake"

func run(ctx context.Context) error {
	only := flag.String("only", "", "the `PART` to do; empty for all")
	keep := flag.String("keep", "", "a `FOLDER` that keeps the requests of the hosts, their output and the relay's messages")
	agents := flag.Bool("frameworks", false, "run the agent frameworks that frameworks/setup.sh has installed instead")
	worker := flag.String("worker", "", "a folder to work in; without it, a child process gets one")
	isolated := flag.Bool("isolated", false, "the worker has a network namespace of its own")
	flag.Parse()
	if parts := partNames(*agents); *only != "" && !slices.Contains(parts, *only) {
		return fmt.Errorf("-only %q: the parts are %s", *only, strings.Join(parts, ", "))
	}
	if *worker == "" {
		return supervise(ctx, os.Args[1:])
	}
	if *isolated {
		if err := raiseLoopback(); err != nil {
			return fmt.Errorf("%w: %w", errNoNamespace, err)
		}
	}
	return work(ctx, *worker, *only, *keep, *agents)
}

func partNames(agents bool) (names []string) {
	all := hosts
	if agents {
		all = frameworks
	}
	for _, h := range all {
		names = append(names, h.name)
	}
	if !agents {
		names = append(names, wakePart)
	}
	return names
}

// work does the parts. The one that waits long runs beside the others, on an executor of its own.
func work(ctx context.Context, dir, only, keep string, agents bool) error {
	l, err := newLab(ctx, dir, keep)
	if err != nil {
		return err
	}
	var parts sync.WaitGroup
	defer parts.Wait()
	if agents {
		l.modules = filepath.Join(stacks.Root(), ".frameworks")
		parts.Go(func() { l.report.must(l.agents(ctx, only)) })
	}
	if !agents && (only == "" || only == wakePart) {
		parts.Go(func() { l.report.must(l.wake(ctx)) })
	}
	if !agents && only != wakePart {
		parts.Go(func() { l.report.must(l.talks(ctx, only)) })
	}
	parts.Wait()
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return l.report.finish()
}

// lab is what all parts share.
type lab struct {
	dir      string
	modules  string // the npm packages
	self     string
	binaries harness.Binaries
	keep     string // a folder for what is recorded
	report   report
}

func newLab(ctx context.Context, dir, keep string) (*lab, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	binaries, err := harness.Build(ctx, dir)
	if err != nil {
		return nil, err
	}
	if keep == "" {
		keep = filepath.Join(dir, "record")
	}
	if keep, err = filepath.Abs(keep); err != nil { // hosts start the proxy elsewhere
		return nil, err
	}
	return &lab{dir: dir, self: self, binaries: binaries, keep: keep, modules: filepath.Join(stacks.Root(), ".hosts", "node_modules")}, nil
}

// vm starts an executor and returns the variables that a relay needs to reach it.
func (l *lab) vm(ctx context.Context, name string) (env map[string]string, stop func() error, err error) {
	dir := filepath.Join(l.dir, "vm-"+name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, nil, err
	}
	secret := auth.GenerateSecret().Reveal()
	executor, err := harness.StartExecutor(ctx, harness.ExecutorConfig{
		Binary: l.binaries.Executor, Dir: dir, Secret: secret, Env: []string{"HOME=" + dir},
		Python: filepath.Join(stacks.Root(), ".python", "old", "bin", "python"),
	})
	if err != nil {
		return nil, nil, err
	}
	home := filepath.Join(l.dir, "relay-"+name)
	env = map[string]string{"COLAB_URL": executor.Ready.LocalURL, "COLAB_SECRET": secret, "HOME": home, "PATH": systemPath}
	return env, func() error {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
		defer cancel()
		return executor.Stop(stopping)
	}, os.Mkdir(home, 0o700)
}
