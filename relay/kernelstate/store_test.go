package kernelstate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"colabrelay/shared/filename"
	"colabrelay/shared/keep"
)

// writeVersion writes a version with that data and returns its folder.
func writeVersion(t testing.TB, dir, name string, number int, data string) string {
	t.Helper()
	folder := filepath.Join(dir, "state", filename.Unique(name), fmt.Sprintf("%06d-20260102T030405Z", number))
	must(t, os.MkdirAll(folder, 0o700))
	must(t, os.WriteFile(filepath.Join(folder, dataFile), []byte(data), 0o600))
	m := Manifest{Schema: schema, Name: name, Version: filepath.Base(folder), Contents: Contents{Pickler: "dill", Bytes: int64(len(data)), SHA256: digestOf(data)}}
	must(t, keep.WriteJSON(filepath.Join(folder, manifestFile), m))
	return folder
}

func TestSecondCallOfANameIsBusy(t *testing.T) { synctest.Test(t, secondCallIsBusy) }

func secondCallIsBusy(t *testing.T) {
	dir := t.TempDir()
	_, done, err := open(nil, dir, Options{Name: "n"})
	must(t, err)
	if _, err := Save(t.Context(), nil, dir, Options{Name: "n"}); !errors.Is(err, ErrBusy) {
		t.Errorf("saving: %v", err)
	}
	if _, err := Restore(t.Context(), nil, dir, Options{Name: "n"}); !errors.Is(err, ErrBusy) {
		t.Errorf("restoring: %v", err)
	}
	_, other, err := open(nil, dir, Options{Name: "N"})
	must(t, err)
	other()
	done()
	_, done, err = open(nil, dir, Options{Name: "n"})
	must(t, err)
	done()
}

func TestNewestGoodVersionIsChosenAndDamagedOnesAreReported(t *testing.T) {
	dir := t.TempDir()
	for i := 1; i <= 3; i++ {
		writeVersion(t, dir, "n", i, fmt.Sprintf("data %d", i))
	}
	must(t, os.WriteFile(filepath.Join(writeVersion(t, dir, "n", 3, "data 3"), dataFile), []byte("DATA 3"), 0o600))
	j := &job{o: Options{Name: "n"}, folder: filepath.Join(dir, "state", "n")}
	var p Progress
	m, err := j.choose(t.Context(), &p)
	must(t, err)
	if !strings.HasPrefix(m.Version, "000002-") || len(p.Warnings) != 1 || !strings.Contains(p.Warnings[0], "000003-") {
		t.Errorf("chose %s, warned %q", m.Version, p.Warnings)
	}
	j.o.Version = "3"
	if _, err := j.choose(t.Context(), &p); !errors.Is(err, ErrDamaged) {
		t.Errorf("requested: %v", err)
	}
	j.o.Version = "1"
	if m, err := j.choose(t.Context(), &p); err != nil || !strings.HasPrefix(m.Version, "000001-") {
		t.Errorf("requested: %s %v", m.Version, err)
	}
}

func TestPruningKeepsTheNewestGoodVersions(t *testing.T) {
	dir := t.TempDir()
	for i := 1; i <= 6; i++ {
		writeVersion(t, dir, "n", i, "data")
	}
	folder := filepath.Join(dir, "state", "n")
	must(t, os.Remove(filepath.Join(folder, "000005-20260102T030405Z", dataFile)))
	must(t, os.MkdirAll(filepath.Join(folder, dropped+"000000-x"), 0o700)) // left by a crash
	must(t, os.MkdirAll(filepath.Join(folder, "mine"), 0o700))             // not a version
	j := &job{folder: folder}
	must(t, j.prune(2))
	var got []string
	entries, err := os.ReadDir(folder)
	must(t, err)
	for _, e := range entries {
		got = append(got, strings.SplitN(e.Name(), "-", 2)[0])
	}
	if want := []string{"000004", "000005", "000006", "mine"}; !slices.Equal(got, want) {
		t.Errorf("kept %q, want %q", got, want)
	}
}

// wantNothingLeft checks that neither side has files of finished work.
func wantNothingLeft(t *testing.T, v *vm, dir, name string) {
	t.Helper()
	v.run("pass") // the deletion of the last file ran before this
	if left, _ := filepath.Glob(filepath.Join(v.temp, "colab-relay-state-*")); len(left) > 0 {
		t.Errorf("left on the VM: %q", left)
	}
	entries, err := os.ReadDir(filepath.Join(dir, "state", name))
	must(t, err)
	for _, e := range entries {
		if !versionForm().MatchString(e.Name()) && e.Name() != "lock" {
			t.Errorf("left on the laptop: %q", e.Name())
		}
	}
}
