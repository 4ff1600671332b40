package program

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// script writes a program that prints a text.
func script(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestACopyIsMadeAndReplaced(t *testing.T) {
	dir := t.TempDir()
	path := PathIn(filepath.Join(dir, "data"), "linux")
	for _, step := range []struct {
		name, version, text string
		action              Action
		before              string
	}{
		{"new", "v1.0.0", "echo v1.0.0", Create, ""},
		{"the same", "v1.0.0", "echo v1.0.0", Keep, "v1.0.0"},
		{"a newer release", "v1.10.0", "echo v1.10.0", Replace, "v1.0.0"},
		{"an older release", "v1.9.1", "echo v1.9.1", Newer, "v1.10.0"},
		{"another build of the release", "v1.10.1-dev.1.gabc", "echo colab-relay v1.10.1-dev.1.gabc", Replace, "v1.10.0"},
		{"a build without a release", "v0.0.0-dev.gabc", "echo v0.0.0-dev.gabc", Replace, "v1.10.1-dev.1.gabc"},
		{"a release over it", "v1.0.0", "exit 1", Replace, "v0.0.0-dev.gabc"},
		{"over a broken one", "v0.1.0", "echo v0.1.0", Replace, ""},
	} {
		from := script(t, filepath.Join(dir, "new", "colab-relay"), step.text)
		c, err := Plan(t.Context(), from, step.version, path)
		if err != nil || c.Action != step.action || c.Before != step.before {
			t.Fatalf("%s: %+v %v", step.name, c, err)
		}
		if err := c.Write(); err != nil {
			t.Fatal(err)
		}
		same, err := identical(from, path)
		if err != nil || same != (step.action != Newer) {
			t.Errorf("%s: identical is %t: %v", step.name, same, err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("%s: mode %v: %v", step.name, info.Mode(), err)
		}
		if all, _ := os.ReadDir(filepath.Dir(path)); len(all) != 1 {
			t.Errorf("%s: beside it: %v", step.name, all)
		}
	}
	if c, err := Plan(t.Context(), path, "dev", path); err != nil || c.Action != Keep {
		t.Errorf("the copy itself: %+v %v", c, err)
	}
	if removed, err := Remove(path); err != nil || !removed {
		t.Errorf("removed is %t: %v", removed, err)
	}
	if removed, err := Remove(path); err != nil || removed {
		t.Errorf("a second time: removed is %t: %v", removed, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "data", "colab-relay")); err == nil {
		t.Error("its folder is still there")
	}
	if got := PathIn("data", "windows"); filepath.Base(got) != "colab-relay.exe" {
		t.Errorf("on Windows: %q", got)
	}
}

// Windows does not replace a program that runs: it is renamed, and deleted later. A
// folder stands for it here, because a file cannot replace one.
func TestAProgramInUseIsRenamed(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "colab-relay")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	from := script(t, filepath.Join(dir, "new"), "echo dev")
	if err := replace(from, path); err != nil {
		t.Fatal(err)
	}
	if version, err := Version(t.Context(), path); err != nil || version != "dev" {
		t.Errorf("%q %v", version, err)
	}
	if aside, _ := filepath.Glob(path + ".*.old"); len(aside) != 1 {
		t.Errorf("renamed: %q", aside)
	}
	if err := replace(script(t, filepath.Join(dir, "newer"), "echo dev"), path); err != nil {
		t.Fatal(err)
	}
	if aside, _ := filepath.Glob(path + ".*.old"); len(aside) != 0 {
		t.Errorf("still there: %q", aside)
	}
}

func TestAProgramThatIsAskedForItsVersionGetsNoSecrets(t *testing.T) {
	for _, name := range []string{"COLAB_SECRET", "NGROK_AUTHTOKEN", "AWS_SECRET_ACCESS_KEY"} {
		t.Setenv(name, "x")
	}
	path := script(t, filepath.Join(t.TempDir(), "relay"), `echo "colab-relay v1.0-$COLAB_SECRET$NGROK_AUTHTOKEN$AWS_SECRET_ACCESS_KEY"; test -n "$PATH"`)
	if version, err := Version(t.Context(), path); err != nil || version != "v1.0-" {
		t.Errorf("it prints %q, %v", version, err)
	}
}

func TestAProgramThatIsNoRelayHasNoVersion(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct{ text, want string }{
		"fails":           {"echo v1.0.0; exit 3", "exit status 3"},
		"prints a text":   {"echo 'usage: relay [options]'", "prints none"},
		"prints too much": {"head -c 100000 /dev/zero", "ask"},
	} {
		if version, err := Version(t.Context(), script(t, filepath.Join(dir, name, "relay"), c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %q %v", name, version, err)
		}
	}
	if _, err := Version(t.Context(), filepath.Join(dir, "gone")); err == nil {
		t.Error("a program that does not exist")
	}
}
