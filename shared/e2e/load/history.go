package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"colabrelay/shared/e2e/harness"
)

const (
	// mostGrowth is by how much a program's resident memory may grow after the first quarter
	// of the time, in MiB. Go returns memory to the system with delays, so that a program that
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
	hours   []float64 // from the beginning to each sample
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
	h.hours = append(h.hours, time.Since(h.began).Hours())
	line := []string{fmt.Sprintf("%4.0f min", time.Since(h.began).Minutes())}
	for _, p := range h.watched {
		now, err := harness.ProcessOf(p.pid)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		p.samples = append(p.samples, now)
		line = append(line, fmt.Sprintf("%s %.1f MiB %d fd %d threads %d children", p.name, now.Memory.Now, now.Descriptors, now.Threads, len(now.Children)))
	}
	temp, err := os.ReadDir(h.world.temp())
	if err != nil {
		return err
	}
	files, size, err := folderSize(filepath.Join(h.world.vm(), ".colab-relay"))
	line = append(line, fmt.Sprintf("%d temporary files, state folder %d files %.1f MiB", len(temp), files, float64(size)/(1<<20)), fmt.Sprintf("%d calls", h.world.tally.total()))
	_, printed := fmt.Fprintln(h.out, strings.Join(line, " | "))
	return errors.Join(err, printed)
}

// folderSize counts the files below a folder and their bytes.
func folderSize(dir string) (files int, size int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // deleted meanwhile
			return nil
		}
		if err != nil || e.IsDir() {
			return err
		}
		if info, err := e.Info(); err == nil {
			files, size = files+1, size+info.Size()
		}
		return nil
	})
	return files, size, err
}

// report prints how each process changed. It fails if one of our programs grew too much.
func (h *history) report() (err error) {
	n := len(h.hours)
	if n < 8 {
		return fmt.Errorf("%d samples are too few to tell growth: at least 8 are needed", n)
	}
	warm := n / 4
	for _, p := range h.watched {
		memory := figures(p.samples, func(s harness.Process) float64 { return s.Memory.Now })
		descriptors := figures(p.samples, func(s harness.Process) float64 { return float64(s.Descriptors) })
		perHour := slope(h.hours[warm:], memory[warm:])
		more := slices.Max(descriptors[n-n/4:]) - slices.Max(descriptors[warm:n/2])
		fmt.Fprintf(h.out, "%s: %.1f to %.1f MiB (peak %.1f), %+.2f MiB per hour; %.0f to %.0f descriptors, %+.0f since the second quarter; %d to %d threads\n",
			p.name, memory[0], memory[n-1], p.samples[n-1].Memory.Peak, perHour, descriptors[0], descriptors[n-1], more, p.samples[0].Threads, p.samples[n-1].Threads)
		if grown := perHour * (h.hours[n-1] - h.hours[warm]); p.ours && grown > mostGrowth {
			err = errors.Join(err, fmt.Errorf("%s grew by %.1f MiB after the first quarter, over %d", p.name, grown, mostGrowth))
		}
		if more > mostMoreDescriptors {
			err = errors.Join(err, fmt.Errorf("%s has %.0f descriptors more than in the second quarter", p.name, more))
		}
	}
	return err
}

func figures(samples []harness.Process, of func(harness.Process) float64) (all []float64) {
	for _, s := range samples {
		all = append(all, of(s))
	}
	return all
}

// slope is that of the line through the points (x, y) with the least squares of distances.
func slope(x, y []float64) float64 {
	n, sumX, sumY, sumXY, sumXX := float64(len(x)), 0.0, 0.0, 0.0, 0.0
	for i := range x {
		sumX, sumY, sumXY, sumXX = sumX+x[i], sumY+y[i], sumXY+x[i]*y[i], sumXX+x[i]*x[i]
	}
	return (n*sumXY - sumX*sumY) / (n*sumXX - sumX*sumX)
}
