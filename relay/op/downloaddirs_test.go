package op

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"colabrelay/relay/transfer"
	"colabrelay/shared/contract"
	"colabrelay/shared/filename"
)

// serveProject is serveVM for a host that may download into a project, in a home folder. The
// VM has two files and those of files.
func serveProject(t *testing.T, files ...string) (h *host, home, project, saveDir string) {
	t.Helper()
	home = t.TempDir()
	t.Setenv("HOME", home)
	project = filepath.Join(home, "project")
	if err := os.MkdirAll(filepath.Join(project, ".git"), 0o700); err != nil {
		t.Fatal(err)
	}
	h, vm, saveDir := serveVM(t)
	h.relay.cfg.DownloadDirs = []string{project}
	vm.Put("x", []byte("content"))
	vm.Put("tree/a/b", []byte("content"))
	for _, name := range files {
		vm.Put(name, []byte("content"))
	}
	return h, home, project, saveDir
}

func (h *host) download(remote, local string, overwrite bool) result {
	return h.call("download_from_colab", map[string]any{"remote_path": remote, "local_filename": local, "overwrite": overwrite})
}

func TestADownloadGoesIntoTheProject(t *testing.T) {
	h, home, project, saveDir := serveProject(t)
	if err := os.Symlink(project, filepath.Join(home, "alias")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ remote, name, want string }{
		{"x", project + "/x", project + "/x"},
		{"x", "~/project/out/y.csv", project + "/out/y.csv"},
		{"x", project + "/", project + "/x"},
		{"x", filepath.Join(home, "alias", "linked"), project + "/linked"},
		{"x", "relative", saveDir + "/relative"},
		{"tree", project + "/results", project + "/results"},
	} {
		got := decode[Download](t, h.download(c.remote, c.name, false).Structured)
		if got.LocalPath != c.want || got.Status == "failed" {
			t.Errorf("%q: %+v, want %q", c.name, got, c.want)
			continue
		}
		if c.remote == "tree" {
			c.want += "/a/b"
		}
		mustHold(t, c.want, []byte("content"))
	}
	write(t, project+"/x", []byte("mine"))
	if got := decode[Download](t, h.download("x", project+"/x", false).Structured); got.LocalPath != project+"/x (1)" {
		t.Errorf("next to another file: %+v", got)
	}
	mustHold(t, project+"/x", []byte("mine"))
	h.download("x", project+"/x", true)
	mustHold(t, project+"/x", []byte("content"))
}

func TestADownloadNeverLeavesTheAllowedFolders(t *testing.T) {
	h, home, project, _ := serveProject(t)
	outside := t.TempDir()
	for name, target := range map[string]string{"out": outside, "up": "..", "git": ".git"} {
		if err := os.Symlink(target, filepath.Join(project, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{
		"../x", "a/../../x", "~/x", filepath.Join(home, "x"), "/etc/x", project + "x/y", project + "/../x",
		project + "/out/x", project + "/out/", project + "/up/x", project + "/a\x00",
		project + "/.git/hooks/pre-commit", project + "/.env", project + "/a/.b/c", project + "/git/config", project + "/\u200d.env", project + "/a/\u200c\ufe0f.git/config",
	} {
		for _, overwrite := range []bool{false, true} {
			o := h.download("x", name, overwrite).outcome(t)
			if o.Error == nil || o.Error.Code != string(contract.CodeForbiddenPath) || !strings.Contains(o.Error.Hint, "RELAY_DOWNLOAD_DIRS") {
				t.Errorf("%q: %+v", name, o)
			}
		}
	}
	for _, dir := range []string{outside, project + "/.git"} {
		if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
			t.Errorf("%q holds %v, %v", dir, entries, err)
		}
	}
}

// The VM chooses the names inside a folder, and that of a file for which the caller names only
// the folder.
func TestADownloadIntoTheProjectWritesNoHiddenFiles(t *testing.T) {
	h, _, project, saveDir := serveProject(t, ".mcp.json", ".envrc", "CLAUDE.md", "new/sub/agents.MD", ".husky/pre-commit", "config", "git/config",
		"new/.git/hooks/pre-commit", "new/.vscode/tasks.json", "new/\u200c.idea/x", "new/.env", "new/sub/.direnv/rc", "new/sub/data", "lib/.git/config", "lib/.git", "lib/code.py", "lib/HEAD")
	for _, dir := range []string{"lib/.git", "other"} {
		if err := os.MkdirAll(filepath.Join(project, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(t, project+"/lib/.git/config", []byte("mine"))
	write(t, project+"/.envrc", []byte("mine"))
	for link, target := range map[string]string{"git": ".git", "other/deep": "../.git"} {
		if err := os.Symlink(target, filepath.Join(project, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, overwrite := range []bool{false, true} {
		for _, c := range [][2]string{
			{".mcp.json", project + "/"}, {".envrc", project}, {"CLAUDE.md", project}, {".husky", project + "/"}, {".husky", project + "/a/"}, {"lib/HEAD", project + "/lib/"}, {"lib/code.py", project + "/lib/head"},
			{"config", project + "/git"}, {"config", project + "/git/"}, {"config", project + "/other/deep"},
		} {
			o := h.download(c[0], c[1], overwrite).outcome(t)
			if o.Error == nil || o.Error.Code != string(contract.CodeForbiddenPath) {
				t.Errorf("%q to %q: %+v", c[0], c[1], o)
			}
		}
		for _, remote := range []string{"new", "lib"} {
			r := h.download(remote, project+"/", overwrite)
			got := decode[Download](t, r.Structured)
			if got.Status == "failed" || !strings.Contains(strings.Join(got.Notes, "\n"), "/.git”") || !strings.Contains(got.Notes[0], "LOCAL_SAVE_DIR gets them with dotfiles=true") {
				t.Errorf("%q: %+v", remote, got)
			}
		}
	}
	if o := h.download("git", project+"/", true).outcome(t); o.Error == nil || o.Error.Code != string(contract.CodeForbiddenPath) {
		t.Errorf("a folder through a link to a hidden one: %+v", o)
	}
	if o := h.download(".mcp.json", project+"/mcp.json", false).outcome(t); o.Error != nil {
		t.Errorf("under a name that is not hidden: %+v", o)
	}
	args := map[string]any{"remote_path": "new", "dotfiles": true}
	if o := h.call("download_from_colab", args).outcome(t); o.Error != nil {
		t.Errorf("into LOCAL_SAVE_DIR: %+v", o)
	}
	args["local_filename"] = project + "/asked/"
	if got := decode[Download](t, h.call("download_from_colab", args).Structured); got.Status != "done" || !strings.Contains(got.Notes[0], "/.git”") {
		t.Errorf("asked for in the project: %+v", got)
	}
	mustHold(t, saveDir+"/new/.git/hooks/pre-commit", []byte("content"))
	mustHold(t, project+"/.envrc", []byte("mine"))
	mustHold(t, project+"/lib/.git/config", []byte("mine"))
	mustHold(t, project+"/lib/code.py", []byte("content"))
	var hidden []string
	if err := filepath.WalkDir(project, func(path string, e os.DirEntry, err error) error {
		if filename.Obeyed(filepath.Base(path)) {
			hidden = append(hidden, strings.TrimPrefix(path, project))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"/.envrc", "/.git", "/lib/.git"}; !slices.Equal(hidden, want) {
		t.Errorf("the project has the hidden files %q, want %q", hidden, want)
	}
	for _, dir := range []string{".git", "lib/.git"} {
		if entries, err := os.ReadDir(filepath.Join(project, dir)); err != nil || len(entries) != len(filepath.Dir(dir))/3 {
			t.Errorf("%q has %v, %v", dir, entries, err)
		}
	}
}

// What runs print and display is saved in one folder. No download takes its place.
func TestADownloadDoesNotTakeTheFolderOfSavedOutput(t *testing.T) {
	cfg := &Config{SaveDir: t.TempDir()}
	for _, name := range []string{"executions", "Executions", "./executions/", "executions/e1/stdout.txt", filepath.Join(cfg.SaveDir, "executions")} {
		if _, err := cfg.destination(name); !errors.Is(err, transfer.ErrForbiddenName) {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"$HOME/x", "%USERPROFILE%/x", "file:///tmp/x", "~root/x"} {
		if to, err := cfg.destination(name); !errors.Is(err, filename.ErrNotation) {
			t.Errorf("%q: %+v, %v", name, to, err)
		}
		if from, err := localPath(cfg.SaveDir, name); !errors.Is(err, filename.ErrNotation) {
			t.Errorf("%q: %q, %v", name, from, err)
		}
	}
	for _, name := range []string{"", "executions.txt", "a/executions", cfg.SaveDir} {
		if _, err := cfg.destination(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}
