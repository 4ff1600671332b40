package config

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"colabrelay/relay/config/configtest"
)

func TestTheHostsProjectGetsDownloadsByDefault(t *testing.T) {
	home := configtest.Home(t)
	outside := t.TempDir()
	for _, dir := range []string{"proj/sub", ".cache/host", "proj/.git", "AppData/Local/Host", "Library/Host", "Documents/Library"} {
		if err := os.MkdirAll(filepath.Join(home, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"out": outside, "hidden": ".cache/host"} {
		if err := os.Symlink(target, filepath.Join(home, link)); err != nil {
			t.Fatal(err)
		}
	}
	for dir, want := range map[string]bool{
		"proj": true, "proj/sub": true, "Documents/Library": true,
		".": false, "..": false, "/": false, ".cache/host": false, "proj/.git": false, "AppData/Local/Host": false, "Library/Host": false,
		outside: false, "out": false, "hidden": false,
	} {
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(home, dir)
		}
		t.Chdir(dir)
		got := Load(Settings{Getenv: configtest.Environ()})
		if found := slices.Equal(got.DownloadDirs, []string{dir}); found != want || !found && len(got.DownloadDirs) > 0 || got.Err() != nil {
			t.Errorf("in %q: %q, %v; want it %v", dir, got.DownloadDirs, got.Err(), want)
		}
	}
}

// In some containers the home folder is the root, and the host starts relays anywhere.
func TestAHomeThatIsTheRootHasNoProjects(t *testing.T) {
	for _, working := range []string{"/etc", "/", t.TempDir()} {
		if isProject(working, "/") {
			t.Errorf("%q is a project", working)
		}
	}
}
