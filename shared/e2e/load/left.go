package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
)

// mostLogs is how many logs of runs the executor keeps open.
const mostLogs = 17

// settleTime bounds the wait until closed connections are gone.
const settleTime = 2 * time.Minute

// holdings is what a world has while no relay is there.
type holdings struct {
	executor, kernel harness.Process
	temporary        []string // files
	unfinished       []string // uploads and parts of files
}

func (w *world) holdings() (h holdings, err error) {
	if h.executor, err = harness.ProcessOf(w.executor.PID()); err != nil {
		return h, err
	}
	if len(h.executor.Children) != 1 {
		return h, fmt.Errorf("the executor has %d child processes, not the kernel alone", len(h.executor.Children))
	}
	if h.kernel, err = harness.ProcessOf(h.executor.Children[0]); err != nil {
		return h, err
	}
	entries, err := os.ReadDir(w.temp())
	if err != nil {
		return h, err
	}
	for _, e := range entries {
		h.temporary = append(h.temporary, e.Name())
	}
	err = filepath.WalkDir(w.dir, func(path string, e fs.DirEntry, err error) error {
		partial := strings.Contains(path, ".colab-part")
		if err == nil && partial {
			h.unfinished = append(h.unfinished, path)
		}
		if errors.Is(err, fs.ErrNotExist) { // deleted meanwhile
			return nil
		}
		return err
	})
	return h, err
}

// otherThanLogs counts open files without the logs of the last runs, which stay open for late
// output.
func otherThanLogs(p harness.Process) (n int) {
	for _, path := range p.Files {
		if ok, _ := filepath.Match("events-*.ndjson", filepath.Base(path)); !ok {
			n++
		}
	}
	return n
}

// more returns what h has more than before.
func (h holdings) more(before holdings) (all []string) {
	for _, c := range []struct {
		what      string
		was, isIt int
	}{
		{"open files of the executor but logs of runs", otherThanLogs(before.executor), otherThanLogs(h.executor)},
		{"sockets of the executor", before.executor.Sockets, h.executor.Sockets},
		{"descriptors of the kernel", before.kernel.Descriptors, h.kernel.Descriptors},
		{"threads of the kernel", before.kernel.Threads, h.kernel.Threads},
		{"child processes of the kernel", len(before.kernel.Children), len(h.kernel.Children)},
	} {
		if c.isIt > c.was {
			all = append(all, fmt.Sprintf("%d %s instead of %d", c.isIt, c.what, c.was))
		}
	}
	for _, name := range h.temporary {
		// A save that another run made stale may leave its folder, which a later save deletes.
		if !slices.Contains(before.temporary, name) && !strings.HasPrefix(name, contract.StateFolderPrefix) {
			all = append(all, "the temporary file "+name)
		}
	}
	if logs := len(h.executor.Files) - otherThanLogs(h.executor); logs > mostLogs {
		all = append(all, fmt.Sprintf("%d open logs of the executor, over %d", logs, mostLogs))
	}
	return append(all, h.unfinished...)
}

// leftNothing ends the relays and fails if anything is left of them: processes, files, or what
// the executor held for them. usual is what idle programs do.
func (w *world) leftNothing(ctx context.Context, before holdings, usual idle, out io.Writer) error {
	var processes []string
	for _, r := range w.relays {
		processes = append(processes, fmt.Sprint("/proc/", r.PID()))
	}
	last := w.relays[0]
	w.relays = w.relays[1:]
	relay, dumped := last.goroutines(ctx)
	if err := errors.Join(dumped, w.dismiss()); err != nil {
		return err
	}
	if i := slices.IndexFunc(processes, func(p string) bool { _, err := os.Stat(p); return err == nil }); i >= 0 {
		return fmt.Errorf("the relay with the process %s did not end", processes[i])
	}
	after, err := w.settle(ctx, before)
	fmt.Fprintf(out, "the executor without relays, before and after: %d and %d descriptors, %d and %d sockets, %d and %d threads, %.1f and %.1f MiB; temporary files: %d and %d\n",
		before.executor.Descriptors, after.executor.Descriptors, before.executor.Sockets, after.executor.Sockets, before.executor.Threads, after.executor.Threads,
		before.executor.Memory.Now, after.executor.Memory.Now, len(before.temporary), len(after.temporary))
	if err != nil {
		return err
	}
	executor, err := w.goroutines(ctx)
	fmt.Fprintf(out, "goroutines of the executor and of one relay: %d and %d; after one round of one relay: %d and %d\n",
		executor.total(), relay.total(), usual.executor.total(), usual.relay.total())
	return cmp.Or(err, errors.Join(executor.more("the executor", usual.executor), relay.more("a relay", usual.relay)))
}

// settle waits until the executor has no more than before.
func (w *world) settle(ctx context.Context, before holdings) (h holdings, err error) {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	var more []string
	err = harness.Poll(ctx, func() (bool, error) {
		var err error
		h, err = w.holdings()
		more = h.more(before)
		return len(more) == 0, err
	})
	if err != nil && len(more) > 0 {
		err = fmt.Errorf("this is left: %s", strings.Join(more, "; "))
	}
	return h, err
}

// census counts a program's goroutines by the function that started them.
type census map[string]int

func (c census) total() (n int) {
	for _, count := range c {
		n += count
	}
	return n
}

// pooled are the goroutines that wait for the next call, or write what the last one has added to
// the history. Their number depends on how many calls came at the same time, up to these bounds.
var pooled = census{
	"net/http.(*Transport).dialConn":            2 * 32, // for each idle connection
	"colabrelay/relay/history.(*Store).report":  1,
	"colabrelay/shared/console.(*Output).write": 2, // which may just be ending
}

// more fails if c has more goroutines of a kind than the usual ones.
func (c census) more(whose string, usual census) (err error) {
	for from, n := range c {
		if n > max(usual[from], pooled[from]) {
			err = errors.Join(err, fmt.Errorf("%s has %d goroutines started by %s instead of %d", whose, n, from, usual[from]))
		}
	}
	return err
}

// dumpEnd is the last register, which is printed last.
var dumpEnd = regexp.MustCompile(`\n(gs|fault) +0x[0-9a-f]+\n$`)

var createdBy = regexp.MustCompile(`(?m)^created by (\S+)`)

// goroutinesOf ends a program by the signal that makes Go print all goroutines. reap returns when
// the program has ended, and log is the file of what it logged.
func goroutinesOf(ctx context.Context, pid int, reap func(), log string) (census, error) {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	process, err := os.FindProcess(pid)
	if err == nil {
		err = process.Signal(syscall.SIGQUIT)
	}
	if err == nil {
		err = harness.Poll(ctx, func() (bool, error) {
			text, err := os.ReadFile(log)
			return dumpEnd.Match(text), err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("asking process %d for its goroutines: %w", pid, err)
	}
	reap()
	printed, err := os.ReadFile(log)
	if err != nil {
		return nil, err
	}
	text := string(printed)
	at := strings.LastIndex(text, "SIGQUIT: quit")
	if at < 0 {
		return nil, fmt.Errorf("process %d did not print its goroutines:\n%s", pid, text)
	}
	all := census{}
	for _, by := range createdBy.FindAllStringSubmatch(text[at:], -1) {
		all[by[1]]++
	}
	return all, nil
}

// idle is the goroutines of idle programs.
type idle struct{ executor, relay census }

// afterOneRound returns the goroutines of an executor and a relay that has done each operation.
func afterOneRound(ctx context.Context, seed uint64) (i idle, err error) {
	w, err := newWorld(ctx, seed)
	if err != nil {
		return i, err
	}
	defer w.close()
	if err := w.startAll(ctx, 1, func(int) int { return 1 }); err != nil {
		return i, err
	}
	if err := w.workHard(ctx, options{rounds: 1}); err != nil {
		return i, err
	}
	r := w.relays[0]
	w.relays = nil
	if i.relay, err = r.goroutines(ctx); err != nil {
		return i, err
	}
	i.executor, err = w.goroutines(ctx)
	return i, err
}

// goroutines ends the relay.
func (r *relay) goroutines(ctx context.Context) (census, error) {
	return goroutinesOf(ctx, r.PID(), func() { _ = r.Close() }, r.dir+".log")
}

// goroutines ends the executor.
func (w *world) goroutines(ctx context.Context) (census, error) {
	return goroutinesOf(ctx, w.executor.PID(), func() { <-w.executor.Exited() }, w.vm()+".log")
}
