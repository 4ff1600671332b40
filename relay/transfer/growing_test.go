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
var changes = map[string]func(file string, text []byte) error{
	"grows":     func(file string, text []byte) error { return appendTo(file, "one more line\n") },
	"is halved": func(file string, text []byte) error { return os.WriteFile(file, text[:len(text)/2+1], 0o644) },
	"is rewritten and grows": func(file string, text []byte) error {
		text[100]++ // of the part that the transfer reads first, and of the last one
		text[len(text)-100]++
		return os.WriteFile(file, append(text, 'x'), 0o644)
	},
	"is replaced": func(file string, text []byte) error {
		text[100]++
		return errors.Join(os.WriteFile(file+".new", append(text, 'x'), 0o644), os.Rename(file+".new", file))
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

// A copy is always the beginning of one state of the file, and no part file stays that nobody can resume.
func TestAFileThatOnlyGrowsIsCopiedUpToItsLengthAtTheStart(t *testing.T) {
	v := useVM(t)
	for name, change := range changes {
		for _, what := range []string{"file, download", "file, upload", "folder, download", "folder, upload"} {
			where, upload := strings.CutSuffix(what, ", upload")
			from, to := v.path(name+what), t.TempDir()
			if upload {
				from, to = t.TempDir(), v.path(name+what)
			}
			file := filepath.Join(from, "train.log")
			source, size := file, int64(partBytes+1000)
			if strings.HasPrefix(where, "folder") {
				source, size = from, contract.MaxBatchFile+1000
			}
			want := fill(t, file, size, 1)
			var states strings.Builder
			var mu sync.Mutex
			v.counts.step(t, func(r *http.Request) {
				if r.URL.Path != contract.PathContent && r.Method != http.MethodPut {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				text, err := os.ReadFile(file)
				states.WriteString("\x00state" + string(text))
				must(t, errors.Join(err, change(file, text)))
			})
			var r Result
			var err error
			if upload {
				r, err = Upload(t.Context(), v.client, source, to+"/", Options{})
			} else {
				r, err = Download(t.Context(), v.client, source, Local{Dir: to, Name: "got/"}, Options{})
			}
			v.counts.step(t, nil)
			if r.IsDir {
				r.Path = filepath.Join(r.Path, "train.log")
			}
			must(t, filepath.WalkDir(to, func(path string, _ os.DirEntry, err error) error {
				if strings.Contains(filepath.Base(path), "part") {
					t.Errorf("%s that %s: %q is left", what, name, path)
				}
				return err
			}))
			switch notes := strings.Join(r.Notes, "\n"); {
			case name == "grows" && (err != nil || sha(t, r.Path) != want || !strings.Contains(notes, "grew")):
				t.Errorf("%s that grows: %+v, %v", what, r, err)
			case name != "grows" && !errors.Is(err, ErrChanged):
				text, readErr := os.ReadFile(file)
				got, gotErr := os.ReadFile(r.Path)
				must(t, errors.Join(err, readErr, gotErr))
				if len(got) == 0 || !strings.Contains(states.String()+"\x00state"+string(text), "\x00state"+string(got)) {
					t.Errorf("%s that %s: a copy of no state of the file: %+v", what, name, r)
				}
			}
		}
	}
}
