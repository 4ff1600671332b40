package history

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"colabrelay/relay/client"
	"colabrelay/shared/contract"
	"colabrelay/shared/within"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newStore(t testing.TB, dir string, most int64) *Store {
	t.Helper()
	s := New(Config{Dir: dir, MaxBytes: most})
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// written waits until everything is on disk.
func written(t testing.TB, s *Store) {
	t.Helper()
	must(t, s.Flush(within.Context(t)))
}

func stream(offset int64, text string) contract.Event {
	return contract.Event{Offset: offset, Type: contract.EventStream, Name: contract.Stdout, Text: text, Time: time.Unix(1, 0).UTC()}
}

func answer(id string, status contract.Status, events ...contract.Event) contract.Execution {
	e := contract.Execution{ExecutionID: id, RequestID: "request-" + id, Status: status, Events: events, CreatedAt: time.Unix(1, 0).UTC()}
	if n := len(events); n > 0 {
		e.NextOffset = events[n-1].Offset + 1
	}
	e.End = status.Finished()
	return e
}

func submit(code string) contract.Submit { return contract.Submit{RequestID: "r", Code: code} }

// texts returns the texts of events, and "gap FROM+EVENTS BYTES" for gaps.
func texts(events []contract.Event) []string {
	var all []string
	for _, ev := range events {
		if ev.Type == contract.EventGap {
			all = append(all, fmt.Sprintf("gap %d+%d %d%s", ev.Offset, ev.Events, ev.Bytes, map[bool]string{true: " not kept"}[ev.Cut == notKept.Cut]))
			continue
		}
		all = append(all, ev.Text)
	}
	return all
}

// whole returns a run as it can be read.
func whole(t testing.TB, s *Store, id string) Whole {
	t.Helper()
	run, err := s.Get(id)
	must(t, err)
	all, err := s.Read(run)
	must(t, err)
	if all.Status != run.Status {
		t.Errorf("the status of %s is %q, listed %q", id, all.Status, run.Status)
	}
	return all
}

func wantTexts(t testing.TB, s *Store, id string, want ...string) Whole {
	t.Helper()
	run := whole(t, s, id)
	if got := texts(run.Events); !reflect.DeepEqual(got, want) {
		t.Errorf("%s has %q, want %q", id, got, want)
	}
	return run
}

func TestARunIsKeptWithItsCodeAndOutput(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "yet")
	s := newStore(t, dir, DefaultBytes)
	r := s.Record("work")
	r.Submitted("vm", submit("print('ü')\nx"), answer("e1", contract.StatusRunning, stream(0, "a")))
	r.Answered("vm", answer("e1", contract.StatusRunning, stream(1, "b"), stream(2, "c")))
	failed := answer("e1", contract.StatusFailed, stream(1, "b"), stream(2, "c"), contract.Event{Offset: 3, Type: contract.EventError, Text: "e", Traceback: []string{"long"}})
	failed.Error = &contract.ExecutionError{EName: "E", EValue: "v", Traceback: []string{"long"}}
	r.Answered("vm", failed)
	r.Submitted("vm", submit("2"), answer("e2", contract.StatusSucceeded))
	written(t, s)

	other := newStore(t, dir, DefaultBytes) // another program
	run := wantTexts(t, other, "e1", "a", "b", "c", "e")
	if run.Runtime != "work" || run.InstanceID != "vm" || run.Code != "print('ü')\nx" || run.Status != contract.StatusFailed || run.RequestID != "r" || !run.Complete || run.Error.EName != "E" || run.Error.Traceback != nil {
		t.Errorf("%+v", run)
	}
	runs, err := other.List()
	if err != nil || len(runs) != 2 || runs[0].ExecutionID != "e2" || !runs[0].End {
		t.Errorf("%+v, %v", runs, err)
	}
	if _, err := other.Get("e3"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	for path, mode := range map[string]os.FileMode{dir: 0o700, runPath(dir, keyOf("vm", "e1")): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
}

func TestMissingEventsAreMarkedAsGaps(t *testing.T) {
	s := newStore(t, t.TempDir(), DefaultBytes)
	r := s.Record("work")
	r.Submitted("vm", submit("1"), answer("e1", contract.StatusRunning))
	r.Answered("vm", answer("e1", contract.StatusRunning, stream(5, "f"), stream(6, "g")))
	r.Answered("vm", answer("e1", contract.StatusRunning, stream(2, "c"), contract.Event{Offset: 3, Type: contract.EventGap, Events: 4}))
	last := answer("e1", contract.StatusSucceeded)
	last.NextOffset = 9
	r.Answered("vm", last)
	written(t, s)
	if whole(t, s, "e1").Complete {
		t.Error("nothing is missing")
	}
	wantTexts(t, s, "e1", "gap 0+2 0 not kept", "c", "gap 3+2 0", "f", "g", "gap 7+2 0 not kept")
}

func TestAHistoryThatIsOffHasNothing(t *testing.T) {
	var s *Store
	runs, err := s.List()
	if _, missing := s.Get("e1"); s.Record("work") != nil || len(runs) > 0 || errors.Join(err, s.Close()) != nil || !errors.Is(missing, ErrNotFound) {
		t.Errorf("%v, %v, %v", runs, err, missing)
	}
	if gap := []contract.Event{{Type: contract.EventGap, Events: 2}}; !reflect.DeepEqual(s.Filler("e1")(gap), gap) {
		t.Error("a gap was filled")
	}
}

func TestRunsOfOthersAreNotRecorded(t *testing.T) {
	dir := t.TempDir()
	s := newStore(t, dir, DefaultBytes)
	r := s.Record("work")
	r.Answered("vm", answer("e1", contract.StatusRunning, stream(0, "a")))
	r.Submitted("vm", submit("1"), answer("../e2", contract.StatusRunning))
	r.Submitted("", submit("1"), answer("e3", contract.StatusRunning))
	written(t, s)
	if runs, err := s.List(); err != nil || len(runs) != 0 {
		t.Errorf("%+v, %v", runs, err)
	}
}

// Of the relay's own code the first line is kept; a person's source in place of the code that wraps it.
func TestCodeIsKeptAsItsAuthorKnowsIt(t *testing.T) {
	for want, code := range map[string]contract.Submit{
		"# colab-relay: batch":          {RequestID: "r", Code: "# colab-relay: batch\n" + strings.Repeat("package", 1e5), Unstored: true},
		"print(1) by train.py":          {RequestID: "r", Code: "exec(…)", Source: "print(1)", SourceName: "train.py", Unstored: true},
		"\n\nprint('ü')\nx by a person": {RequestID: "r", Code: "\n\nprint('ü')\nx", SourceName: "a person"},
	} {
		s := newStore(t, t.TempDir(), DefaultBytes)
		s.Record("work").Submitted("vm", code, answer("e1", contract.StatusSucceeded, stream(0, "a")))
		written(t, s)
		run := wantTexts(t, s, "e1", "a")
		got := run.Code
		if run.Name != "" {
			got += " by " + run.Name
		}
		if got != want || run.Internal != (run.Name == "") {
			t.Errorf("got %q, want %q: %+v", got, want, run)
		}
	}
}

func TestPicturesThatWereFetchedAreKept(t *testing.T) {
	dir := t.TempDir()
	s := newStore(t, dir, DefaultBytes)
	content := []byte("png")
	sum := sha256.Sum256(content)
	blob := contract.Blob{Number: 1, SHA256: hex.EncodeToString(sum[:]), Bytes: 3}
	r := s.Record("work")
	r.Fetched("vm", "e0", blob, content)
	ref, err := json.Marshal(contract.BlobRef{Blob: blob})
	must(t, err)
	r.Submitted("vm", submit("1"), answer("e1", contract.StatusSucceeded, contract.Event{Type: contract.EventDisplayData, Data: map[string]json.RawMessage{"image/png": ref}}))
	written(t, s)
	if whole(t, s, "e1").Complete {
		t.Error("the picture is missing")
	}
	r.Fetched("vm", "e1", blob, content)
	written(t, s)
	run := whole(t, s, "e1")
	if !run.Complete {
		t.Errorf("%+v", run)
	}
	fetch := run.Fetch
	var got bytes.Buffer
	if err := fetch(t.Context(), blob, &got); err != nil || got.String() != "png" {
		t.Errorf("%q, %v", got.String(), err)
	}
	for _, sum := range []string{strings.Repeat("0", 64), "../x", ""} {
		if err := fetch(t.Context(), contract.Blob{SHA256: sum}, &got); !errors.Is(err, ErrNotFound) {
			t.Errorf("%q: %v", sum, err)
		}
	}
	must(t, os.WriteFile(blobPath(dir, run.key(), blob.SHA256), []byte("pn"), 0o600)) // a kill cut it
	if err := fetch(t.Context(), blob, &got); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}

func TestManyProgramsRecordAtOnce(t *testing.T) {
	dir := t.TempDir()
	const programs, runs = 8, 30
	var wait sync.WaitGroup
	for p := range programs {
		wait.Go(func() {
			s := New(Config{Dir: dir, MaxBytes: DefaultBytes})
			r := s.Record("work")
			for n := range runs {
				r.Submitted("vm", submit("1"), answer(fmt.Sprintf("own-%d-%d", p, n), contract.StatusSucceeded, stream(0, "x")))
			}
			for n := range int64(runs) { // all follow one run
				r.Submitted("vm", submit("shared"), answer("shared", contract.StatusRunning, stream(n, fmt.Sprint(n))))
			}
			if err := errors.Join(s.Flush(within.Context(t)), s.Close()); err != nil { // Close alone gives up on a slow machine
				t.Error(err)
			}
		})
	}
	wait.Wait()
	s := newStore(t, dir, DefaultBytes)
	all, err := s.List()
	if err != nil || len(all) != programs*runs+1 {
		t.Errorf("%d runs, %v", len(all), err)
	}
	var want []string
	for n := range runs {
		want = append(want, fmt.Sprint(n))
	}
	wantTexts(t, s, "shared", want...)
}

// A program that is killed at any byte of what it writes leaves a history that can be read, and to
// which others append. Nothing that was recorded before is lost.
func TestAKillAtAnyByteCostsOthersNothing(t *testing.T) {
	dir := t.TempDir()
	first := newStore(t, dir, DefaultBytes)
	first.Record("work").Submitted("vm", submit("1"), answer("e0", contract.StatusSucceeded, stream(0, "x")))
	written(t, first)
	before := files(t, dir)
	first.Record("work").Submitted("vm", submit("1"), answer("e1", contract.StatusRunning, stream(0, "a")))
	written(t, first)
	after := files(t, dir)
	for name, text := range after {
		for cut := len(before[name]); cut < len(text); cut++ {
			must(t, os.WriteFile(filepath.Join(dir, name), []byte(text[:cut]), 0o600))
			s := New(Config{Dir: dir, MaxBytes: DefaultBytes})
			r := s.Record("work")
			r.Submitted("vm", submit("1"), answer("e1", contract.StatusRunning, stream(0, "a")))
			r.Answered("vm", answer("e1", contract.StatusSucceeded, stream(1, "b")))
			must(t, s.Close())
			wantTexts(t, s, "e0", "x")
			if run := wantTexts(t, s, "e1", "a", "b"); !run.Complete || t.Failed() {
				t.Fatalf("%s cut at %d: %+v", name, cut, run)
			}
			for name, text := range after {
				must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
			}
		}
	}
}

func TestGapsOfTheVMAreFilledFromTheHistory(t *testing.T) {
	s := newStore(t, t.TempDir(), DefaultBytes)
	r := s.Record("work")
	gap := func(from, events, bytes int64) contract.Event {
		return contract.Event{Offset: from, Type: contract.EventGap, Events: events, Bytes: bytes}
	}
	r.Submitted("vm", submit("1"), answer("e1", contract.StatusRunning, stream(0, "0"), stream(1, "1")))
	r.Answered("vm", answer("e1", contract.StatusRunning, stream(3, "3"), gap(4, 3, 0)))
	written(t, s)
	for _, test := range []struct {
		id     string
		events []contract.Event
		want   []string
	}{
		{"e1", []contract.Event{gap(0, 6, 0), stream(6, "6")}, []string{"0", "1", "gap 2+1 0", "3", "gap 4+2 0", "6"}},
		{"e1", []contract.Event{gap(1, 1, 9), stream(2, "2"), gap(4, 2, 7)}, []string{"1", "2", "gap 4+2 7"}},
		{"e1", []contract.Event{stream(0, "other")}, []string{"other"}},
		{"e1", []contract.Event{gap(-1, 3, 0), gap(0, 1<<62, 5)}, []string{"gap -1+3 0", "gap 0+4611686018427387904 5"}}, // no executor sends them
		{"unknown", []contract.Event{gap(0, 6, 5)}, []string{"gap 0+6 5"}},
	} {
		if got := texts(s.Filler(test.id)(test.events)); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", test.id, got, test.want)
		}
	}
}

// vm is a VM that knows one run, and sends two events in each answer.
type vm struct {
	instance string
	recorder client.Recorder
	status   contract.Status
	events   int64
}

func (v *vm) InstanceID() string { return v.instance }

func (v *vm) Execution(_ context.Context, id string, offset int64, _ time.Duration, _ int64) (contract.Execution, error) {
	if id != "e1" {
		return contract.Execution{}, &contract.Error{Code: contract.CodeNotFound}
	}
	e := answer(id, v.status)
	for n := offset; n < min(offset+2, v.events); n++ {
		e.Events = append(e.Events, stream(n, fmt.Sprint(n)))
	}
	e.NextOffset = min(offset+2, v.events)
	e.End = v.status.Finished() && e.NextOffset == v.events
	v.recorder.Answered(v.instance, e)
	return e, nil
}

func TestCompleteFetchesWhatIsMissing(t *testing.T) {
	s := newStore(t, t.TempDir(), DefaultBytes)
	r := s.Record("work")
	v := &vm{instance: "vm", recorder: r, status: contract.StatusRunning, events: 5}
	r.Submitted("vm", submit("1"), answer("e1", contract.StatusRunning, stream(0, "0")))
	r.Answered("vm", answer("e1", contract.StatusRunning, stream(3, "3")))
	written(t, s)
	run := wantTexts(t, s, "e1", "0", "gap 1+2 0 not kept", "3")
	if !run.Lacks() {
		t.Error("nothing is missing")
	}
	run, err := s.Complete(t.Context(), v, run)
	if err != nil || run.Status != contract.StatusRunning {
		t.Errorf("%+v, %v", run, err)
	}
	wantTexts(t, s, "e1", "0", "1", "2", "3", "4")

	v.status, v.events = contract.StatusSucceeded, 8
	run, err = s.Complete(t.Context(), v, run)
	if err != nil || run.Status != contract.StatusSucceeded || run.Lacks() || !run.Complete {
		t.Errorf("%+v, %v", run, err)
	}
	wantTexts(t, s, "e1", "0", "1", "2", "3", "4", "5", "6", "7")
}

func TestCompleteFailsWhereTheVMIsAnotherOne(t *testing.T) {
	s := newStore(t, t.TempDir(), DefaultBytes)
	r := s.Record("work")
	r.Submitted("old", submit("1"), answer("e2", contract.StatusRunning, stream(0, "0")))
	written(t, s)
	run := wantTexts(t, s, "e2", "0")
	got, err := s.Complete(t.Context(), &vm{instance: "new", recorder: r}, run)
	refused, ok := err.(*contract.Error)
	if !ok || refused.Code != contract.CodeNewInstance || got.ExecutionID != "e2" {
		t.Errorf("%+v, %v", got, err)
	}
}
