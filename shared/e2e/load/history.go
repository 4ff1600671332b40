package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"colabrelay/shared/e2e/harness"
)

const (
	// mostGrowth is by how much a program's resident memory may grow from the second quarter of
	// the time to the last, in MiB. Go returns memory to the system with delays, so that a program that
	// keeps nothing also moves by some MiB.
	mostGrowth = 12
	// mostMoreDescriptors is how many descriptors more a program may have in the last quarter
	// of the time than in the second one.
	mostMoreDescriptors = 3
)

// history is what the watched processes had at each sample.
type history struct {
	world   *world
	out     io.Writer
	began   time.Time
	watched []*watched
}

// watched is one process.
type watched struct {
	name    string
	pid     int
	ours    bool // it is one of our programs
	samples []harness.Process
}

// newHistory watches the executor, its kernel and all relays.
func newHistory(w *world, out io.Writer) (*history, error) {
	h := &history{world: w, out: out, began: time.Now()}
	executor, err := harness.ProcessOf(w.executor.PID())
	if err != nil {
		return nil, err
	}
	if len(executor.Children) != 1 {
		return nil, fmt.Errorf("the executor has %d children, not the kernel alone", len(executor.Children))
	}
	h.watched = []*watched{{name: "executor", pid: w.executor.PID(), ours: true}, {name: "kernel", pid: executor.Children[0]}}
	for _, r := range w.relays {
		h.watched = append(h.watched, &watched{name: r.name, pid: r.PID(), ours: true})
	}
	return h, nil
}

// sample adds one sample and prints it.
func (h *history) sample() error {

	line := []string{fmt.Sprintf("%4.0f min", time.Since(h.began).Minutes())}
	for _, p := range h.watched {
		now, err := harness.ProcessOf(p.pid)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		p.samples = append(p.samples, now)
		line = append(line, fmt.Sprintf("%s %.1f MiB %d fd %d threads %d children", p.name, now.Memory.Now, now.Descriptors, now.Threads, len(now.Children)))
	}
	line = append(line, fmt.Sprintf("%d calls", h.world.tally.total()))
	_, err := fmt.Fprintln(h.out, strings.Join(line, " | "))
	return err
}

// report prints how each process changed. It fails if one of our programs grew too much.
func (h *history) report() (err error) {
	n := len(h.watched[0].samples)
	if n < 8 {
		return fmt.Errorf("%d samples are too few to tell growth: at least 8 are needed", n)
	}
	for _, p := range h.watched {
		first, last := p.most(n/4, n/2), p.most(n-n/4, n)
		grown, more := last.Memory.Now-first.Memory.Now, last.Descriptors-first.Descriptors
		fmt.Fprintf(h.out, "%s: %+.1f MiB and %+d descriptors from the second to the last quarter; peak %.1f MiB\n", p.name, grown, more, last.Memory.Peak)
		if p.ours && grown > mostGrowth || more > mostMoreDescriptors {
			err = errors.Join(err, fmt.Errorf("%s grew by %.1f MiB, of %d, and has %d descriptors more, of %d", p.name, grown, mostGrowth, more, mostMoreDescriptors))
		}
	}
	return err
}

// most returns the largest figures of some samples.
func (p *watched) most(from, to int) (most harness.Process) {
	for _, s := range p.samples[from:to] {
		most.Memory.Now, most.Memory.Peak = max(most.Memory.Now, s.Memory.Now), max(most.Memory.Peak, s.Memory.Peak)
		most.Descriptors = max(most.Descriptors, s.Descriptors)
	}
	return most
}
