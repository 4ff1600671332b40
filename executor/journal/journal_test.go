package journal

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"colabrelay/shared/contract"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func openIn(t *testing.T, dir string, limits Limits) *Journal {
	t.Helper()
	j, err := Open(Config{Dir: dir, Limits: limits, Log: slog.New(slog.DiscardHandler)})
	must(t, err)
	return j
}

func create(t *testing.T, j *Journal, s contract.Submit) *Record {
	t.Helper()
	r, err := j.Create(s)
	must(t, err)
	return r
}

func stdout(text string) contract.Event {
	return contract.Event{Type: contract.EventStream, Name: contract.Stdout, Text: text}
}

// finished adds an execution that printed text and succeeded.
func finished(t *testing.T, j *Journal, s contract.Submit, text string) *Record {
	t.Helper()
	r := create(t, j, s)
	must(t, r.Append(stdout(text)))
	r.Finish(contract.StatusSucceeded, "", 0)
	j.Trim()
	return r
}

func read(t *testing.T, j *Journal, id string) contract.Execution {
	t.Helper()
	x, err := j.Read(t.Context(), id, ReadRequest{})
	must(t, err)
	return x
}

func TestTheRelaysOwnExecutionsDisplaceOnlyEachOther(t *testing.T) {
	j := openIn(t, t.TempDir(), Limits{Kept: 10, StateSize: 600_000})
	users := finished(t, j, contract.Submit{RequestID: "user", Code: "1"}, strings.Repeat("x", 100_000))
	running := create(t, j, contract.Submit{RequestID: "running", Code: "1", Unstored: true})
	must(t, running.Append(stdout(strings.Repeat("x", 100_000))))
	for n := range 30 {
		finished(t, j, contract.Submit{RequestID: fmt.Sprint("own-", n), Code: "1", Unstored: true}, strings.Repeat("y", 100_000))
	}
	for what, r := range map[string]*Record{"the user's": users, "the running one's": running} {
		if x := read(t, j, r.ID); len(x.Events) != 1 || len(x.Events[0].Text) != 100_000 {
			t.Errorf("%s output was deleted", what)
		}
	}
	if n := len(j.List(100)); n != 11 {
		t.Errorf("%d executions are kept, want the user's and 10 of the relay's", n)
	}
	for n := range 30 {
		if _, err := j.Submitted(contract.Submit{RequestID: fmt.Sprint("own-", n), Code: "other", Unstored: true}); !errors.Is(err, ErrConflict) {
			t.Errorf("own execution %d: %v", n, err)
		}
	}
}

func TestEventOverTheBoundBecomesAGap(t *testing.T) {
	j := openIn(t, t.TempDir(), Limits{})
	r := create(t, j, contract.Submit{RequestID: "r", Code: "1"})
	for _, text := range []string{strings.Repeat("x", contract.MaxEventBytes), "after"} {
		must(t, r.Append(stdout(text)))
	}
	x := read(t, j, r.ID)
	if x.NextOffset != 2 || x.Events[0].Type != contract.EventGap || x.Events[0].Bytes <= contract.MaxEventBytes || x.Events[1].Text != "after" {
		t.Errorf("next offset %d of %d events", x.NextOffset, len(x.Events))
	}
}

// A run that was queued when a line was cut may have begun.
func TestARunWhoseRecordIsCutIsNotCalledOneThatNeverRan(t *testing.T) {
	for name, cut := range map[string]int64{"within a line": 5, "at its end": 0} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			j := openIn(t, dir, Limits{})
			r := create(t, j, contract.Submit{RequestID: "1", Code: "1"})
			queued := j.states.used
			must(t, r.Update(func(x *contract.Execution) { x.Status = contract.StatusRunning }))
			must(t, os.Truncate(j.states.path, queued+cut))
			again, err := openIn(t, dir, Limits{}).Find(r.ID)
			must(t, err)
			x, want := again.Snapshot(), contract.StatusLost
			if cut == 0 {
				want = contract.StatusCancelled
			}
			if x.Status != want || strings.Contains(x.Reason, "never ran") != (cut == 0) {
				t.Errorf("%s: %s", x.Status, x.Reason)
			}
		})
	}
}

// A full disk kept events in memory, a caller read them, and a kill took them. The caller asks for the
// next ones.
func TestACallerHasReadMoreThanAKillLeft(t *testing.T) {
	dir := t.TempDir()
	r := create(t, openIn(t, dir, Limits{}), contract.Submit{RequestID: "1", Code: "1"})
	must(t, r.Update(func(x *contract.Execution) { x.Status = contract.StatusRunning }))
	for _, text := range []string{"first", "second"} {
		must(t, r.Append(stdout(text)))
	}
	logs, err := filepath.Glob(filepath.Join(r.dir, "events*"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("logs %q, %v", logs, err)
	}
	for _, log := range logs {
		must(t, os.Truncate(log, 0))
	}
	again := openIn(t, dir, Limits{})
	x, err := again.Read(t.Context(), r.ID, ReadRequest{Offset: 2})
	if err != nil || x.Status != contract.StatusLost || !x.End || len(x.Events) != 0 {
		t.Errorf("%+v, %v", x, err)
	}
}

func putBlob(t *testing.T, r *Record, text string) contract.Blob {
	t.Helper()
	blob, err := r.PutBlob(int64(len(text)), func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	})
	must(t, err)
	return blob
}

func readBlob(t *testing.T, j *Journal, id string, number int) string {
	t.Helper()
	f, err := j.Blob(id, number)
	must(t, err)
	defer f.Close()
	text, err := io.ReadAll(f)
	must(t, err)
	return string(text)
}

func TestBlobsAreNumberedAndRepeatedOnesKeptOnce(t *testing.T) {
	dir := t.TempDir()
	j := openIn(t, dir, Limits{})
	r := create(t, j, contract.Submit{RequestID: "r"})
	other := create(t, j, contract.Submit{RequestID: "other"})
	for i, text := range []string{"one", "two!", "one", "", "two!"} {
		if got, want := putBlob(t, r, text).Number, []int{1, 2, 1, 3, 2}[i]; got != want {
			t.Errorf("%q has number %d, want %d", text, got, want)
		}
	}
	if got := putBlob(t, other, "two!").Number; got != 1 {
		t.Errorf("the first blob of another execution has number %d", got)
	}
	if files, err := os.ReadDir(r.blobs.folder()); err != nil || len(files) != 3 || r.blobs.size() != int64(len("onetwo!")) {
		t.Errorf("files %v of %d bytes, %v", files, r.blobs.size(), err)
	}
	r.Finish(contract.StatusSucceeded, "", 0)
	for when, j := range map[string]*Journal{"immediately": j, "after a restart": openIn(t, dir, Limits{})} {
		if got := readBlob(t, j, r.ID, 2); got != "two!" {
			t.Errorf("%s, blob 2 is %q", when, got)
		}
		for _, number := range []int{-1, 0, 4, contract.MaxBlobs + 1} {
			if _, err := j.Blob(r.ID, number); !errors.Is(err, ErrNoBlob) {
				t.Errorf("%s, blob %d: %v", when, number, err)
			}
		}
	}
}

func TestNoNumberIsUsedTwice(t *testing.T) {
	r := create(t, openIn(t, t.TempDir(), Limits{}), contract.Submit{RequestID: "r"})
	numbers := []int{putBlob(t, r, "a").Number}
	r.CloseLog() // forgets which payloads there are
	numbers = append(numbers, putBlob(t, r, "a").Number)
	os.RemoveAll(r.blobs.folder()) // by a user
	numbers = append(numbers, putBlob(t, r, "a").Number)
	r.dropOutput()
	numbers = append(numbers, putBlob(t, r, "a").Number)
	if got := fmt.Sprint(numbers); got != "[1 2 3 4]" {
		t.Errorf("numbers %s", got)
	}
}

// A reader in parts is told of the end with the last of them, and not before.
func TestTheEndComesWithTheLastPart(t *testing.T) {
	j := openIn(t, t.TempDir(), Limits{})
	r := create(t, j, contract.Submit{RequestID: "r", Code: "1"})
	for _, text := range []string{"a", "b", "c"} {
		must(t, r.Append(stdout(text)))
	}
	r.Finish(contract.StatusSucceeded, "", 0)
	if got := fetch(t, j, r.ID); got != "abc" {
		t.Errorf("read %q to the end", got)
	}
}

// However often a log has changed its file, it is read from every offset, and to the end.
func TestALogOfManySegmentsIsReadFromEveryOffset(t *testing.T) {
	dir := t.TempDir()
	j := openIn(t, dir, Limits{LogBytes: minSegments * 500})
	r := create(t, j, contract.Submit{RequestID: "r", Code: "1"})
	const all = 40
	for n := range all {
		must(t, r.Append(stdout(fmt.Sprint(n, strings.Repeat("x", 10*(n%7))))))
	}
	r.Finish(contract.StatusSucceeded, "", 0)
	if n := len(r.events.segments); n < 5 {
		t.Fatalf("%d segments", n)
	}
	for when, j := range map[string]*Journal{"immediately": j, "after a restart": openIn(t, dir, Limits{})} {
		for from := range int64(all) {
			for _, most := range []int64{1, 300, 1 << 20} {
				next := from
				for end := false; !end; {
					x, err := j.Read(t.Context(), r.ID, ReadRequest{Offset: next, MaxBytes: most})
					must(t, err)
					for _, e := range x.Events {
						if e.Offset != next || !strings.HasPrefix(e.Text, fmt.Sprint(next)) {
							t.Fatalf("%s, from %d: event %d is %+v", when, from, next, e)
						}
						next++
					}
					end = x.End
				}
				if next != all {
					t.Errorf("%s, from %d: read to %d", when, from, next)
				}
			}
		}
	}
}

// Of a log over its limit, the beginning and the end are kept, and one gap counts what is between.
func TestTheMiddleOfALogOverItsLimitIsAGap(t *testing.T) {
	dir := t.TempDir()
	const limit, all = minSegments * 500, 300
	j := openIn(t, dir, Limits{LogBytes: limit})
	r := create(t, j, contract.Submit{RequestID: "r", Code: "1"})
	sizes := map[int64]int64{}
	for n := range int64(all) {
		before := r.events.written
		must(t, r.Append(stdout(fmt.Sprint(n))))
		sizes[n] = r.events.written - before
	}
	r.Finish(contract.StatusSucceeded, "", 0)
	for when, j := range map[string]*Journal{"immediately": j, "after a restart": openIn(t, dir, Limits{})} {
		x := read(t, j, r.ID)
		next, kept, gaps := int64(0), int64(0), 0
		for _, e := range x.Events {
			if e.Offset != next {
				t.Fatalf("%s, event %d has offset %d", when, next, e.Offset)
			}
			next += offsets(e)
			if e.Type != contract.EventGap {
				kept += sizes[e.Offset]
				continue
			}
			gaps++
			var missing int64
			for n := e.Offset; n < next; n++ {
				missing += sizes[n]
			}
			if e.Bytes != missing || e.Offset < 30 || next > all-30 {
				t.Errorf("%s, the gap is %+v, want %d bytes", when, e, missing)
			}
		}
		if next != all || gaps != 1 || kept > limit || !x.End {
			t.Errorf("%s, %d events with %d gaps, %d bytes", when, next, gaps, kept)
		}
	}
}

// BenchmarkStart opens a journal of 5,000 past runs.
func BenchmarkStart(b *testing.B) {
	cfg := Config{Dir: b.TempDir(), Limits: Limits{Kept: 5000}, Log: slog.New(slog.DiscardHandler)}
	j, err := Open(cfg)
	must(b, err)
	for n := range 5000 {
		r, err := j.Create(contract.Submit{RequestID: fmt.Sprint("request-", n), Code: "print('one line')"})
		must(b, err)
		must(b, r.Update(func(x *contract.Execution) { x.Status = contract.StatusRunning }))
		must(b, r.Append(stdout("one line\n")))
		r.Finish(contract.StatusSucceeded, "", 1<<30)
		r.CloseLog()
	}
	for b.Loop() {
		_, err := Open(cfg)
		must(b, err)
	}
}
