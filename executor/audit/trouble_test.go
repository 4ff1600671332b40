package audit

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"colabrelay/executor/logfile"
	"colabrelay/shared/contract"
)

func TestAFileThatCannotBeWrittenStopsNothingAndWhatItCostIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := config(t)
		dir := filepath.Dir(cfg.Path)
		var said bytes.Buffer
		cfg.Log = slog.New(slog.NewTextHandler(&said, nil))
		l := opened(t, cfg)
		defer running(l)()
		l.Ended(contract.Execution{}, "")
		must(t, os.Rename(dir, dir+".gone"))
		began := time.Now()
		for range 100 {
			l.Ended(contract.Execution{}, "")
		}
		l.Submitted(from, submit("s", "1"))
		if took := time.Since(began); took > 0 {
			t.Errorf("101 records took %v", took)
		}
		<-time.After(3 * time.Second)
		must(t, os.Rename(dir+".gone", dir))
		<-time.After(2 * time.Second) // nobody asks for anything any more
		synctest.Wait()
		if n := strings.Count(said.String(), "\n"); n != 2 || !strings.Contains(said.String(), "cannot be written") || !strings.Contains(said.String(), "written again") {
			t.Errorf("the executor's log says %s", &said)
		}
		got := lines(t, cfg.Path)
		last := got[len(got)-1]
		if len(got) != 3 || last.Event != eventOmitted || last.Count != 101 || !last.Since.Equal(began) || last.KeyID != cfg.KeyID || !strings.Contains(last.Cause, "no such file") {
			t.Errorf("the log ends with %+v", last)
		}
	})
}

// fullDisk is a file on a disk without room.
type fullDisk struct{ *os.File }

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestAKillIsToldAlsoIfTheNextExecutorCanWriteNothingAtFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := config(t)
		running(opened(t, cfg))()
		running(opened(t, cfg))()
		if got := of(eventStarted, lines(t, cfg.Path)); got[0].AfterUncleanEnd || got[1].AfterUncleanEnd {
			t.Errorf("after an executor that stopped, the log says that it did not: %+v", got)
		}
		for _, content := range []string{"", string(hostile("x").line()), string(record{Event: eventStopped}.line()) + "{"} {
			must(t, os.WriteFile(cfg.Path, []byte(content), 0o600))
			first := true
			l, err := open(cfg, func() (logfile.Disk, error) {
				f, err := openFile(cfg.Path)
				if first {
					first = false
					return fullDisk{f}, err
				}
				return f, err
			})
			must(t, err)
			stop := running(l)
			must(t, os.Rename(cfg.Path, cfg.Path+".moved")) // the next file has room
			<-time.After(2 * time.Second)
			stop()
			if got := lines(t, cfg.Path); len(got) != 2 || got[0].Event != eventOmitted || !got[0].AfterUncleanEnd {
				t.Errorf("after a kill that left %q, the log has %+v", content, got)
			}
		}
	})
}
