package vm

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"colabrelay/relay/client"
	"colabrelay/shared/contract"
)

// world is what a Keeper sees in a test, and what it did.
type world struct {
	work    Work
	asked   int
	touches []time.Duration // since the start
}

// keepAlive runs a Keeper of one VM of that age in synctest's bubble.
func keepAlive(t *testing.T, w *world, age time.Duration, resume bool) *Keeper {
	start := time.Now()
	k := &Keeper{
		vms: func() ([]Record, error) {
			return []Record{{ID: "colab-relay-0", Backend: "cli", Name: "vm", Asked: start.Add(-age)}}, nil
		},
		touch: func(context.Context, Record) error {
			w.touches = append(w.touches, time.Since(start))
			return nil
		},
		log: slog.New(slog.DiscardHandler), busy: map[string]bool{},
	}
	k.Start(t.Context(), func(context.Context, string) (Work, error) {
		w.asked++
		return w.work, nil
	}, resume)
	t.Cleanup(k.Close)
	return k
}

func TestAVMIsKeptAliveOnlyWhileCodeRuns(t *testing.T) {
	for name, test := range map[string]struct {
		reported, resume bool
		work             Work
		asked, touched   int // in the first hour
	}{
		"nothing was seen to run":           {false, false, Working, 0, 0},
		"the run ended while nobody looked": {true, false, Idle, 1, 0},
		"the run waits for input":           {true, false, Waiting, 12, 0},
		"the run goes on":                   {true, false, Working, 12, 12},
		"an earlier relay's run goes on":    {false, true, Working, 13, 13},
		"an earlier relay's run ended":      {false, true, Idle, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{work: test.work}
				k := keepAlive(t, w, 0, test.resume)
				recorder := k.Record(func(string) client.Recorder { return nil })("vm")
				recorder.Answered("i", contract.Execution{Status: contract.StatusSucceeded})
				if test.reported {
					recorder.Submitted("i", contract.Submit{}, contract.Execution{Status: contract.StatusQueued})
				}
				<-time.After(time.Hour) // of synctest's clock
				synctest.Wait()
				if w.asked != test.asked || len(w.touches) != test.touched {
					t.Errorf("%d questions and %d keep-alives", w.asked, len(w.touches))
				}
				for i := 1; i < len(w.touches); i++ {
					if w.touches[i]-w.touches[i-1] != KeepInterval {
						t.Errorf("keep-alives at %v", w.touches)
					}
				}
			})
		})
	}
}

func TestAVMIsKeptAliveFor24HoursAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{work: Working}
		keepAlive(t, w, time.Hour, true)
		<-time.After(48 * time.Hour)
		synctest.Wait()
		if last := w.touches[len(w.touches)-1]; len(w.touches) != 23*12 || last >= 23*time.Hour {
			t.Errorf("%d keep-alives, the last after %v", len(w.touches), last)
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
