package history

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/damage"
	"colabrelay/shared/tier"
)

func TestADamagedHistoryHidesNoOtherRun(t *testing.T) {
	tier.Long(t)
	damage.Files{
		Make: func(t testing.TB, dir string) {
			s := New(Config{Dir: dir, MaxBytes: 1 << 30})
			for _, id := range []string{"one", "two"} {
				s.Record("vm").Submitted("instance", submit("print(1)"), answer(id, contract.StatusRunning))
				s.Record("vm").Answered("instance", answer(id, contract.StatusSucceeded, stream(0, "first "+id), stream(1, "last "+id)))
			}
			must(t, s.Flush(t.Context())) // Close gives up on a slow machine
			s.Close()
		},
		Use: func(t testing.TB, dir string) (found, said string) {
			var log bytes.Buffer
			s := New(Config{Dir: dir, MaxBytes: 1 << 30, Log: slog.New(slog.NewTextHandler(&log, nil))})
			runs, err := s.List()
			must(t, err)
			seen := map[string]bool{}
			for _, id := range []string{"one", "two"} {
				if run, err := s.Get(id); err == nil {
					events, err := s.Events(run)
					must(t, err)
					found += fmt.Sprintln(id, run.Status, texts(events))
					seen[id] = true
				}
			}
			if !seen["two"] {
				t.Errorf("another run is not listed: %v", runs)
			}
			s.Record("vm").Submitted("instance", submit("2"), answer("new", contract.StatusSucceeded, stream(0, "new")))
			s.Record("vm").Answered("instance", answer("one", contract.StatusSucceeded, stream(0, "first one"), stream(1, "last one")))
			must(t, s.Flush(t.Context())) // Close gives up on a slow machine
			s.Close()
			if _, err := s.Get("new"); err != nil {
				t.Errorf("a new run: %v", err)
			}
			return found, log.String()
		},
		Damage:    []string{keyOf("instance", "one") + headSuffix},
		Rewritten: []string{keyOf("instance", "one") + headSuffix},
		Lines:     []string{"*" + headSuffix},
		Harmless: func(_, _, found string) bool { // damaged lines are marked as missing output, or the run is not finished
			return strings.Contains(found, "gap ") || strings.Contains(found, "one queued") || strings.Contains(found, "one running")
		},
		MaxAlloc: 1 << 29, // each of eight reads may hold a line of maxLine
		Cuts:     100,
	}.Test(t)
}
