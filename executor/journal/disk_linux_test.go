package journal

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/damage"
	"colabrelay/shared/tier"
)

// journalFolder writes what a killed executor leaves: a forgotten run, one that succeeded and
// one that was running.
func journalFolder(t testing.TB, dir string) {
	j, err := Open(Config{Dir: dir, Limits: Limits{Kept: 2}, Log: slog.New(slog.DiscardHandler)})
	must(t, err)
	for n := range 3 {
		r, err := j.Create(contract.Submit{RequestID: fmt.Sprint("request-", n), Code: fmt.Sprint("run(", n, ")")})
		must(t, err)
		for line := range 3 {
			must(t, r.Append(stdout(fmt.Sprint("line ", line, " of run ", n, "\n"))))
		}
		_, err = r.PutBlob(100, func(w io.Writer) error { _, err := io.WriteString(w, "a picture"); return err })
		must(t, err)
		must(t, r.Update(func(x *contract.Execution) { x.Status = contract.StatusRunning }))
		if n < 2 {
			r.Finish(contract.StatusSucceeded, "", 0)
		}
		j.Trim()
	}
	closeAll(j)
}

// closeAll closes the files, as the end of a killed executor does.
func closeAll(j *Journal) {
	j.states.file.Close()
	for _, r := range j.order {
		r.events.close()
	}
}

// useJournal is the next executor: it says how each run ended, and with which output.
func useJournal(t testing.TB, dir string) (found, said string) {
	var log bytes.Buffer
	j, err := Open(Config{Dir: dir, Limits: Limits{Kept: 20}, Log: slog.New(slog.NewTextHandler(&log, nil))})
	must(t, err)
	defer closeAll(j)
	for _, n := range []int{0, 1, 2} {
		r := j.ByRequest(fmt.Sprint("request-", n))
		if r == nil {
			found += fmt.Sprintf("%d is unknown\n", n)
			continue
		}
		x, err := j.Read(t.Context(), r.ID, ReadRequest{})
		if err != nil {
			t.Errorf("reading run %d: %v", n, err)
		}
		found += fmt.Sprint(n, " ", x.Status, " ", x.NextOffset, text(x), blobText(t, j, r.ID), "\n")
	}
	next, err := j.Create(contract.Submit{RequestID: "next", Code: "1"})
	must(t, err)
	must(t, next.Append(stdout("new")))
	next.Finish(contract.StatusSucceeded, "", 0)
	return found, log.String()
}

// text returns the output of a run. A gap names its kind, and so the file.
func text(x contract.Execution) (all string) {
	for _, e := range x.Events {
		all += fmt.Sprintf(" %d %s %q", e.Offset, e.Type, e.Text)
	}
	return all
}

func blobText(t testing.TB, j *Journal, id string) string {
	f, err := j.Blob(id, 1)
	if err != nil {
		return " " + err.Error()
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, 1000))
	must(t, err)
	return fmt.Sprintf(" blob %q", content)
}

func TestDamagedFilesOfTheLogAreKeptAndReported(t *testing.T) {
	tier.Long(t)
	damage.Files{
		Make:      journalFolder,
		Use:       useJournal,
		Damage:    []string{statesFile, "*/events-*", "*/blobs/1"},
		Rewritten: []string{statesFile},
		Lines:     []string{statesFile, "*/events-*"},
		Harmless: func(file, kind, found string) bool {
			switch {
			case strings.Contains(file, "blobs"):
				return true // a relay compares the digest
			}
			return strings.Contains(file, "events-") && strings.Count(found, string(contract.EventGap)) > 1 // a reader sees the gap
		},
		Cuts: 10,
	}.Test(t)
}

func TestEventsThatAFullDiskDelaysAreWrittenLater(t *testing.T) {
	dir := t.TempDir()
	j := openIn(t, dir, Limits{LogBytes: minSegments}) // each event has a file
	r := create(t, j, contract.Submit{RequestID: "r", Code: "1"})
	must(t, r.Append(stdout("first\n")))
	second := filepath.Join(r.dir, fmt.Sprintf(segmentName, 1, r.events.written))
	must(t, os.Symlink("/dev/full", second))
	must(t, r.Append(stdout("delayed\n")))
	if !r.events.inMemory() || !j.NeedsFlush() {
		t.Error("the journal does not know that an event is in memory only")
	}
	must(t, os.Remove(second))
	r.Finish(contract.StatusSucceeded, "", 0)
	j.Flush()
	if r.InMemory() || j.NeedsFlush() {
		t.Error("the event is still in memory only")
	}
	x := read(t, openIn(t, dir, Limits{}), r.ID)
	if len(x.Events) != 2 || x.Events[0].Text != "first\n" || x.Events[1].Text != "delayed\n" {
		t.Errorf("events = %+v", x.Events)
	}
}
