package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"syscall"

	"colabrelay/shared/e2e/harness"
)

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
