package transfer

import (
	"path/filepath"
	"slices"
	"testing"
)

// Programs on the laptop run or obey such files because of their names, which the VM chooses.
func TestAFolderComesWithoutWhatProgramsObey(t *testing.T) {
	v := useVM(t)
	left := []string{".GIT", ".envrc", ".mcp.json", "CLAUDE.md", "GIT~1", "sub/.vscode", "sub/HEAD", "sub/agents.MD"}
	for _, name := range []string{".GIT/config", ".envrc", ".mcp.json", "CLAUDE.md", "GIT~1/config", "sub/.vscode/tasks.json", "sub/HEAD", "sub/agents.MD", "sub/a.py", "README.md", ".keep/x/y"} {
		fill(t, v.path("p/"+name), 10, 1)
	}
	left = append(left, ".keep")
	slices.Sort(left)
	dir := t.TempDir()
	for _, skipped := range []int{0, 2} {
		r, err := Download(t.Context(), v.client, v.path("p"), Local{Dir: dir}, Options{})
		must(t, err)
		slices.Sort(r.LeftOut.Paths)
		want := make([]string, len(left))
		for i, name := range left {
			want[i] = v.path("p/" + name)
		}
		if r.Files != 2 || r.Skipped != skipped || !slices.Equal(r.LeftOut.Paths, want) || r.LeftOut.More != 0 {
			t.Errorf("%+v, want %q", r, want)
		}
		wantNames(t, r.Path, "README.md", "sub")
		wantNames(t, filepath.Join(r.Path, "sub"), "a.py")
	}
	r, err := Download(t.Context(), v.client, v.path("p/.keep"), Local{Dir: dir}, Options{}) // who names it asks for it
	if err != nil || r.Files != 1 || len(r.LeftOut.Paths) != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	r, err = Download(t.Context(), v.client, v.path("p"), Local{Dir: dir, Dotfiles: true}, Options{})
	if err != nil || r.Files != 11 || len(r.LeftOut.Paths) != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	wantNames(t, filepath.Join(r.Path, ".GIT"), "config")
	r, err = Download(t.Context(), v.client, v.path("p"), Local{Dir: t.TempDir(), Dotfiles: true, NoObeyed: true}, Options{})
	if err != nil || r.Files != 2 || len(r.LeftOut.Paths) != len(left) {
		t.Errorf("%+v, %v", r, err)
	}
}
