package audit

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"colabrelay/shared/tier"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestTheLogIsBoundedByRotation(t *testing.T) {
	cfg := config(t)
	cfg.Limits = Limits{FileBytes: 4 << 10, Old: 2}
	for range 3 { // the size of an earlier executor's file counts
		l := open(t, cfg)
		stop := running(l)
		for range 40 {
			l.Submitted(from, submit("s", "1"))
		}
		stop()
	}
	found, err := os.ReadDir(filepath.Dir(cfg.Path))
	must(t, err)
	if len(found) != 3 {
		t.Errorf("the folder has %v", found)
	}
	for _, path := range []string{cfg.Path, cfg.Path + ".1", cfg.Path + ".2"} {
		info, err := os.Stat(path)
		must(t, err)
		if info.Size() > cfg.Limits.FileBytes || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has %d bytes, mode %v", path, info.Size(), info.Mode())
		}
		if len(lines(t, path)) == 0 {
			t.Errorf("%s is empty", path)
		}
	}
}

// A kill or a crash can leave any part of the last line.
func TestATornLastLineIsRemovedWhereverItWasCut(t *testing.T) {
	tier.Long(t)
	cfg := config(t)
	whole := bytes.Repeat(record{Event: eventEnded, Source: from}.line(), 2)
	first := bytes.IndexByte(whole, '\n') + 1
	for n := range len(whole) + 1 {
		must(t, os.WriteFile(cfg.Path, whole[:n], 0o600))
		l := open(t, cfg)
		running(l)()
		kept, torn := n, 0
		switch {
		case n < first:
			kept, torn = 0, n
		case n < len(whole):
			kept, torn = first, n-first
		}
		raw, err := os.ReadFile(cfg.Path)
		must(t, err)
		if !bytes.HasPrefix(raw, whole[:kept]) {
			t.Fatalf("cut at %d: the complete lines are not kept", n)
		}
		got := lines(t, cfg.Path)
		if said := got[len(got)-2]; said.Event != eventStarted || said.TornBytes != int64(torn) || said.AfterUncleanEnd != (n > 0) {
			t.Fatalf("cut at %d: %+v, want %d torn bytes", n, said, torn)
		}
	}
	running(open(t, cfg))()
	if got := lines(t, cfg.Path); got[len(got)-2].AfterUncleanEnd {
		t.Error("after an executor that stopped, the log says that it did not")
	}
}

func TestAFileThatIsNoLogIsSetAsideUnchanged(t *testing.T) {
	log := string(hostile("one").line())
	for name, content := range map[string]string{
		"text": "export PATH=/bin\n", "a log and zeros": log + strings.Repeat("\x00", 100), "an endless line": log + `{"time":"` + strings.Repeat("x", 2*maxLine),
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(t)
			must(t, os.WriteFile(cfg.Path, []byte(content), 0o600))
			running(open(t, cfg))()
			if raw, err := os.ReadFile(cfg.Path + ".1"); err != nil || string(raw) != content {
				t.Errorf("%d bytes are set aside: %v", len(raw), err)
			}
			if got := lines(t, cfg.Path); got[0].Event != eventStarted {
				t.Errorf("the new log begins with %+v", got[0])
			}
		})
	}
}

func TestOnlyARegularFileOfThisUserIsOpened(t *testing.T) {
	for name, test := range map[string]struct {
		make func(t *testing.T, path string) error
		want string
	}{
		"a symbolic link": {func(t *testing.T, p string) error {
			must(t, os.WriteFile(p+".target", nil, 0o600))
			return os.Symlink(p+".target", p)
		}, "symbolic link"},
		"a FIFO": {func(t *testing.T, p string) error { return syscall.Mkfifo(p, 0o600) }, "regular file"},
		"a second name": {func(t *testing.T, p string) error {
			must(t, os.WriteFile(p+".other", nil, 0o600))
			return os.Link(p+".other", p)
		}, "hard link"},
		"a log that is in use": {func(t *testing.T, p string) error {
			cfg := config(t)
			cfg.Path = p
			t.Cleanup(running(open(t, cfg)))
			return nil
		}, "another executor"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(t)
			must(t, test.make(t, cfg.Path))
			_, err := Open(cfg)
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), fmt.Sprintf("audit log %q: ", cfg.Path)) {
				t.Errorf("the error is %v, want %q", err, test.want)
			}
			if checked := Check(cfg.Path); name != "a log that is in use" && checked == nil {
				t.Error("Check accepts it")
			}
		})
	}
}

func TestAFileThatOthersCouldReadIsMadePrivate(t *testing.T) {
	cfg := config(t)
	must(t, os.WriteFile(cfg.Path, nil, 0o644))
	must(t, Check(cfg.Path))
	running(open(t, cfg))()
	if info, _ := os.Stat(cfg.Path); info.Mode().Perm() != 0o600 {
		t.Errorf("mode is %v", info.Mode())
	}
}

func TestADeletedOrMovedFileIsMadeAnew(t *testing.T) {
	cfg := config(t)
	l := open(t, cfg)
	stop := running(l)
	l.Submitted(from, submit("s1", "1"))
	must(t, os.Rename(cfg.Path, cfg.Path+".moved"))
	l.Submitted(from, submit("s2", "1"))
	must(t, os.Remove(cfg.Path))
	l.Submitted(from, submit("s3", "1"))
	stop()
	for path, want := range map[string]string{cfg.Path + ".moved": "s1", cfg.Path: "s3"} {
		if got := of(eventSubmitted, lines(t, path)); len(got) != 1 || got[0].SubmitID != want {
			t.Errorf("%s has %+v", path, got)
		}
	}
}
