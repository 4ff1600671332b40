package journal

import (
	"os"
	"testing"

	"colabrelay/shared/contract"
)

func TestEventsThatAFullDiskDelaysAreWrittenLater(t *testing.T) {
	dir := t.TempDir()
	j := openIn(t, dir, Limits{})
	r := create(t, j, contract.Submit{RequestID: "r", Code: "1"})
	if err := r.Append(stdout("first\n")); err != nil {
		t.Fatal(err)
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	r.events.close()
	r.events.file = full
	if err := r.Append(stdout("delayed\n")); err != nil {
		t.Fatal(err)
	}
	if !j.NeedsFlush() {
		t.Error("the journal does not know that an event is in memory only")
	}
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
