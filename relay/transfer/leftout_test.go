package transfer

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"colabrelay/relay/plain"
	"colabrelay/shared/memorydir"
	"colabrelay/shared/tier"
)

// Programs on the laptop run or obey such files because of their names, which the VM chooses.
func TestAFolderComesWithoutWhatProgramsObey(t *testing.T) {
	tier.Long(t)
	v := newVM(t)
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

func TestWhatIsLeftOutIsListedInABoundedLine(t *testing.T) {
	tier.Long(t)
	v := newMemoryVM(t)
	for i := range 3_000 {
		fill(t, v.path(fmt.Sprintf("many/.%d", i)), 1, 1)
	}
	dir := memorydir.New(t)
	r, err := Download(t.Context(), v.client, v.path("many"), Local{Dir: dir}, Options{})
	must(t, err)
	note := r.LeftOut.Note("x")
	if len(r.LeftOut.Paths) != maxLeftOut || r.LeftOut.More != 3_000-maxLeftOut || plain.Line(note) != note || !strings.HasSuffix(note, "”, 2990 further ones; x") {
		t.Errorf("%q", note)
	}
	must(t, filepath.WalkDir(r.Path, func(at string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			t.Errorf("there is %q", at)
		}
		return err
	}))
	for n, want := range map[int]string{maxLeftOut: "”; x", maxLeftOut + 1: "”, 1 further one; x"} {
		var l LeftOut
		for i := range n {
			l.add(fmt.Sprintf("/.%d", i))
		}
		if got := l.Note("x"); !strings.HasSuffix(got, want) {
			t.Errorf("%d paths: %q", n, got)
		}
	}
	for n, shown := range map[int]int{maxLeftOutRunes - 2: 1, maxLeftOutRunes - 1: 0} { // with their quotation marks
		l := LeftOut{}
		l.add("/." + strings.Repeat("ü", n-2))
		if got := l.Note("x"); strings.Count(got, "“") != shown || strings.Contains(got, "1 further one") != (shown == 0) || plain.Line(got) != got {
			t.Errorf("a path of %d characters: %.200q", n, got)
		}
	}
}
