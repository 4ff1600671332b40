package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/smalldisk"
	"colabrelay/shared/tier"
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

func TestReserveIsBoundedAndUsedAgain(t *testing.T) {
	tier.Long(t)
	disk := smalldisk.Run(t, 12)
	if disk == "" {
		return
	}
	filler := filepath.Join(disk, "filler")
	j := openIn(t, filepath.Join(disk, "executions"), Limits{})
	run := func(n int) error {
		r, err := j.Create(contract.Submit{RequestID: fmt.Sprint("n", n), Code: "pass"})
		if err != nil {
			return err
		}
		if err := r.Update(func(x *contract.Execution) { x.Status = contract.StatusRunning }); err != nil {
			return err
		}
		r.Finish(contract.StatusSucceeded, "", 0)
		return nil
	}
	smalldisk.Fill(t, filler)
	accepted := 0
	var err error
	for ; err == nil && accepted < 5000; accepted++ {
		err = run(accepted)
	}
	if !errors.Is(err, ErrDiskFull) || accepted < 400 {
		t.Errorf("after %d executions on a full disk: %v", accepted, err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	for j.NeedsFlush() {
		j.Flush()
	}
	if j.reserve.used != 0 {
		t.Errorf("%d bytes of the reserve are still used", j.reserve.used)
	}
	smalldisk.Fill(t, filler)
	if err := run(accepted); err != nil {
		t.Errorf("when the disk is full again: %v", err)
	}
}
