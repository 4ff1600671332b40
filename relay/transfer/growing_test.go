package transfer

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"colabrelay/shared/contract"
)

// changes are what another program does to a file just before each request about its bytes.
var changes = map[string]func(file string) error{
	"grows":     func(file string) error { return appendTo(file, "one more line\n") },
	"is halved": func(file string) error { return errors.Join(cut(file, 2), appendTo(file, "a new line\n")) },
	"is rewritten and grows": func(file string) error {
		text, err := os.ReadFile(file)
		text[100]++ // of the part that the transfer reads first, and of the last one
		text[len(text)-100]++
		return errors.Join(err, os.WriteFile(file, append(text, 'x'), 0o644))
	},
	"is replaced": func(file string) error {
		text, err := os.ReadFile(file)
		text[100]++
		return errors.Join(err, os.WriteFile(file+".new", append(text, 'x'), 0o644), os.Rename(file+".new", file))
	},
}

func appendTo(file, text string) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

func cut(file string, by int64) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	return os.Truncate(file, info.Size()/by)
}

// wantNoParts checks that no transfer left a part file below dir.
func wantNoParts(t *testing.T, dir string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if strings.Contains(filepath.Base(path), "part") {
			t.Errorf("%q is left", path)
		}
		return err
	}))
}

// A copy is always the beginning of one state of the file.
func TestAFileThatOnlyGrowsIsCopiedUpToItsLengthAtTheStart(t *testing.T) {
	v := useVM(t)
	for name, change := range changes {
		for _, where := range []string{"file", "folder"} {
			for _, direction := range []string{"download", "upload"} {
				what := strings.Join([]string{where, name, direction}, ", ")
				from, to := v.path(what), t.TempDir()
				if direction == "upload" {
					from, to = filepath.Join(t.TempDir(), "in"), v.path(what)
				}
				file := filepath.Join(from, "train.log")
				want := fill(t, file, map[string]int64{"file": partBytes + 1000, "folder": contract.MaxBatchFile + 1000}[where], 1)
				var states []string // of the file
				var mu sync.Mutex
				v.counts.step(t, func(r *http.Request) {
					if r.URL.Path != contract.PathContent && r.Method != http.MethodPut {
						return
					}
					mu.Lock()
					defer mu.Unlock()
					text, err := os.ReadFile(file)
					states = append(states, string(text))
					must(t, errors.Join(err, change(file)))
				})
				source := map[string]string{"file": file, "folder": from}[where]
				var r Result
				var err error
				if direction == "upload" {
					r, err = Upload(t.Context(), v.client, source, to+"/", Options{})
				} else {
					r, err = Download(t.Context(), v.client, source, Local{Dir: to, Name: "got/"}, Options{})
				}
				v.counts.step(t, nil)
				if where == "folder" {
					r.Path = filepath.Join(r.Path, "train.log")
				}
				wantNoParts(t, v.dir)
				if name == "grows" {
					if err != nil || sha(t, r.Path) != want || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "grew") {
						t.Errorf("%s: %+v, %v", what, r, err)
					}
					continue
				}
				if errors.Is(err, ErrChanged) {
					wantNoParts(t, to)
					continue
				}
				text, readErr := os.ReadFile(file)
				got, gotErr := os.ReadFile(r.Path)
				must(t, errors.Join(err, readErr, gotErr))
				of := false
				for _, state := range append(states, string(text)) {
					of = of || strings.HasPrefix(state, string(got))
				}
				if !of || len(got) == 0 {
					t.Errorf("%s: a copy of no state of the file: %+v", what, r)
				}
			}
		}
	}
}
