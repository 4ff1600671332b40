package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestTheInstanceIDIsMadeOncePerStateDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	var ids []string
	for range 2 {
		s, err := openState(dir)
		must(t, err)
		ids = append(ids, s.instanceID)
		s.close()
	}
	other, err := openState(t.TempDir())
	must(t, err)
	defer other.close()
	if ids[0] != ids[1] || ids[0] == other.instanceID {
		t.Fatalf("ids are %q, of another dir %q", ids, other.instanceID)
	}
}

func TestTheStateDirIsForItsUserOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	must(t, os.Mkdir(dir, 0o755))
	s, err := openState(dir)
	must(t, err)
	defer s.close()
	for path, want := range map[string]os.FileMode{dir: 0o700, s.path("instance.json"): 0o600, s.path("lock"): 0o600} {
		info, err := os.Stat(path)
		must(t, err)
		if info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, want %v", path, info.Mode().Perm(), want)
		}
	}
}

func TestTwoExecutorsNeverShareAStateDir(t *testing.T) {
	dir := t.TempDir()
	s, err := openState(dir)
	must(t, err)
	if _, err := openState(dir); err == nil || !strings.Contains(err.Error(), "another executor") {
		t.Fatalf("the second one gets %v", err)
	}
	s.close()
	again, err := openState(dir)
	must(t, err)
	again.close()
}

func TestABrokenInstanceFileIsAnErrorAndNotANewInstance(t *testing.T) {
	for _, content := range []string{"", "{", `{"instance_id":"x"}`} {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, "instance.json"), []byte(content), 0o600))
		if s, err := openState(dir); err == nil {
			t.Errorf("content %q gives instance %q", content, s.instanceID)
		}
	}
}

func TestTheReadyFileAppearsWholeAndGoes(t *testing.T) {
	f := readyFile{path: filepath.Join(t.TempDir(), "ready.json")}
	must(t, f.write(readyInfo{URL: "http://a"}))
	info, err := os.Stat(f.path)
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode is %v: it holds the secret", info.Mode().Perm())
	}
	must(t, f.write(readyInfo{URL: "http://b"}))
	raw, err := os.ReadFile(f.path)
	must(t, err)
	var got readyInfo
	if err := json.Unmarshal(raw, &got); err != nil || got.URL != "http://b" {
		t.Errorf("content is %s: %v", raw, err)
	}
	must(t, os.Remove(f.path))
	must(t, f.write(readyInfo{URL: "http://c"})) // its reader took it away
	if _, err := os.Stat(f.path); err == nil {
		t.Error("a file that was taken away is back")
	}
	f.remove()
	must(t, f.write(readyInfo{})) // a tunnel that came up late
	left, err := os.ReadDir(filepath.Dir(f.path))
	must(t, err)
	if len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestAReadyFileOfSomebodyElseStays(t *testing.T) {
	f := readyFile{path: filepath.Join(t.TempDir(), "ready.json")}
	must(t, os.WriteFile(f.path, nil, 0o600))
	f.remove()
	if _, err := os.Stat(f.path); err != nil {
		t.Error(err)
	}
}

func TestTheLogFileIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "executor.log")
	l, err := openLogFile(path)
	must(t, err)
	line := append(bytes.Repeat([]byte("x"), 1023), '\n')
	for range 3 * maxLog / len(line) {
		if _, err := l.Write(line); err != nil {
			t.Fatal(err)
		}
	}
	l.close()
	again, err := openLogFile(path) // its size counts on
	must(t, err)
	defer again.close()
	for range maxLog / len(line) / 2 {
		again.Write(line)
	}
	for _, p := range []string{path, path + ".1"} {
		info, err := os.Stat(p)
		must(t, err)
		if info.Size() > maxLog || info.Size() == 0 || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has %d bytes, mode %v", p, info.Size(), info.Mode().Perm())
		}
	}
}

func TestAConsoleNobodyReadsNeverBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe() // a write waits for a read
		c := newConsole(w)
		began := time.Now()
		for range 3 * consoleWrites {
			if n, err := c.Write([]byte("line\n")); n != 5 || err != nil {
				t.Fatalf("write gives %d, %v", n, err)
			}
		}
		if d := time.Since(began); d != 0 {
			t.Errorf("writing took %v", d)
		}
		c.close()
		if d := time.Since(began); d != consoleGrace {
			t.Errorf("closing took %v, want %v", d, consoleGrace)
		}
		if _, err := c.Write([]byte("late")); err != nil {
			t.Error(err)
		}
		r.Close() // lets the writer end
	})
}

func TestAConsoleThatIsReadLosesNothing(t *testing.T) {
	var out bytes.Buffer
	c := newConsole(&out)
	for range consoleWrites {
		c.Write([]byte("line\n"))
	}
	c.close()
	if out.Len() != consoleWrites*len("line\n") {
		t.Errorf("%d bytes came", out.Len())
	}
}

type brokenPty struct{}

func (brokenPty) Write([]byte) (int, error) { return 0, errors.New("input/output error") }

func TestABrokenConsoleIsNoError(t *testing.T) {
	c := newConsole(brokenPty{})
	if _, err := c.Write([]byte("line\n")); err != nil {
		t.Error(err)
	}
	c.close()
}
