package vm

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// world is what a Keeper sees in a test, and what it did.
type world struct {
	counted [2]int // questions and keep-alives until the last after
	mu      sync.Mutex
	vms     []Kept
	vmsErr  error
	work    map[string]Work
	workErr error
	touched error
	asked   []string
	touches []time.Duration // since the start
	start   time.Time
}

// keepAlive runs a Keeper in w until the end of the test.
func keepAlive(t *testing.T, w *world, resume bool) *Keeper {
	w.start = time.Now()
	k := &Keeper{
		vms: func() ([]Kept, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.vms, w.vmsErr
		},
		work: func(_ context.Context, runtime string) (Work, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.asked = append(w.asked, runtime)
			return w.work[runtime], w.workErr
		},
		touch: func(context.Context, Kept) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.touches = append(w.touches, time.Since(w.start))
			return w.touched
		},
		resume: resume, log: slog.New(slog.DiscardHandler), reported: map[string]map[string]bool{},
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); k.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return k
}

// after waits, and returns how often the Keeper asked executors and touched VMs since the
// last call.
func (w *world) after(d time.Duration) (asked, touched int) {
	<-time.After(d) // of synctest's clock
	synctest.Wait()
	before := w.counted
	w.counted[0], w.counted[1] = w.counts()
	return w.counted[0] - before[0], w.counted[1] - before[1]
}

// all returns the runtimes asked and the times of the keep-alives since the start.
func (w *world) all() ([]string, []time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.asked), slices.Clone(w.touches)
}

func (w *world) counts() (asked, touched int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.asked), len(w.touches)
}

func one(since time.Time) []Kept {
	return []Kept{{ID: "colab-relay-0", Backend: "cli", Runtime: "vm", Since: since}}
}

func TestAVMIsKeptAliveOnlyWhileCodeRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{vms: one(time.Now()), work: map[string]Work{"vm": Working}}
		k := keepAlive(t, w, false)
		if asked, touched := w.after(time.Hour); asked != 0 || touched != 0 {
			t.Errorf("an idle VM: %d questions and %d keep-alives", asked, touched)
		}
		k.Report("vm", "e1", false)
		if asked, touched := w.after(time.Hour); asked != 12 || touched != 12 {
			t.Errorf("an hour of running code: %d questions and %d keep-alives", asked, touched)
		}
		_, touches := w.all()
		for i, at := range touches[1:] {
			if at-touches[i] != KeepInterval {
				t.Errorf("keep-alives at %v", touches)
				break
			}
		}
		k.Report("vm", "e1", true)
		if asked, touched := w.after(time.Hour); asked != 0 || touched != 0 {
			t.Errorf("after the end: %d questions and %d keep-alives", asked, touched)
		}
	})
}

func TestWhatTheExecutorSaysDecides(t *testing.T) {
	for name, test := range map[string]struct {
		work           Work
		asked, touched int // in the next hour
	}{
		"the run ended while nobody looked": {Idle, 1, 0},
		"the run waits for input":           {Waiting, 12, 0},
		"the run goes on":                   {Working, 12, 12},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{vms: one(time.Now()), work: map[string]Work{"vm": test.work}}
				keepAlive(t, w, false).Report("vm", "e1", false)
				if asked, touched := w.after(time.Hour); asked != test.asked || touched != test.touched {
					t.Errorf("%d questions and %d keep-alives", asked, touched)
				}
			})
		})
	}
}

func TestAVMIsKeptAliveFor24HoursAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{vms: one(time.Now().Add(-time.Hour)), work: map[string]Work{"vm": Working}}
		keepAlive(t, w, false).Report("vm", "e1", false)
		w.after(48 * time.Hour)
		_, touches := w.all()
		if last := touches[len(touches)-1]; len(touches) != 23*12-1 || last >= 23*time.Hour {
			t.Errorf("%d keep-alives, the last after %v", len(touches), last)
		}
	})
}

func TestARestartedRelayKeepsAVMAliveOnWhichCodeRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{vms: one(time.Now()), work: map[string]Work{"vm": Working}}
		keepAlive(t, w, true)
		if asked, touched := w.after(time.Hour); asked != 13 || touched != 13 {
			t.Errorf("%d questions and %d keep-alives", asked, touched)
		}
	})
}

func TestALadderHasCPUOnlyWhereItIsNamed(t *testing.T) {
	for text, want := range map[string][]string{
		"":               {CPU},
		"  ":             {CPU},
		"cpu":            {CPU},
		"t4, l4,A100":    {"T4", "L4", "A100"},
		"A100,T4,a100":   {"A100", "T4"},
		"T4,cpu":         {"T4", CPU},
		"V5E1,V6E1,G4":   {"V5E1", "V6E1", "G4"},
		"\tH100\n, cpu ": {"H100", CPU},
	} {
		if got, err := ParseAccelerators(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

// Hurry makes the Manager wait so long for a VM to appear in lists and for an executor's answer.
func (m *Manager) Hurry(appear, answer time.Duration) {
	m.limits.appear, m.limits.proxy, m.limits.tunnel, m.limits.check = appear, answer, answer, answer
}

// FillDisk makes every change of the record fail.
func (m *Manager) FillDisk() {
	m.store.file.Write = func(string, []byte) error { return errors.New("no space left on device") }
}

// DigestOf returns the digest of a program.
var DigestOf = digestOf
