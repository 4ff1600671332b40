package kernelstate

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/transfer"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/hostilevm"
	"colabrelay/shared/filename"
	"colabrelay/shared/keep"
	"colabrelay/shared/stacks"
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
	must(t, os.MkdirAll(filepath.Join(folder, "mine"), 0o700)) // not a version
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

// checkpointed returns a folder with a checkpoint file for the run "n".
func checkpointed(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "n.json"), nil, 0o600))
	return dir
}

// written has the kernel write a copy of a run's variables.
func (v *vm) written(content string) KeptFile {
	v.t.Helper()
	path := strings.TrimSpace(v.run(fmt.Sprintf("import os as _o, tempfile as _t\n_p = _o.path.join(_t.mkdtemp(prefix='colab-relay-state-'), 'data.state')\nprint(open(_p, 'w').write(%q) and _p)", content)))
	sum := sha256.Sum256([]byte(content))
	return KeptFile{Path: path, Bytes: int64(len(content)), SHA256: hex.EncodeToString(sum[:]), KernelID: "k", Until: time.Now().Add(time.Minute)}
}

func TestCopiesOfARunAreFetchedAndPlacedOnAnotherVM(t *testing.T) {
	t.Parallel()
	v, dir := borrowVM(t, stacks.Old(t)), checkpointed(t)
	k := NewKeeper(v.client, dir, "n", "test")
	fetch := func(content string) string {
		version, err := k.Fetch(t.Context(), v.written(content))
		if must(t, err); version == "" {
			t.Fatal("no version")
		}
		return version
	}
	fetch("first")
	second := fetch("second")
	must(t, k.DropOthers(second))
	if all, err := versions(filepath.Join(dir, "kept", "n")); err != nil || !slices.Equal(all, []string{second}) {
		t.Errorf("%v, %v", all, err)
	}
	other := borrowVM(t, stacks.Old(t))
	there := NewKeeper(other.client, dir, "n", "test")
	for range 2 { // a kernel may have deleted what was placed before
		path, err := there.Place(t.Context(), second, time.Now().Add(time.Minute))
		must(t, err)
		if got, err := os.ReadFile(path); err != nil || string(got) != "second" || checkPlace(path) != nil {
			t.Errorf("%q has %q, %v", path, got, err)
		}
		must(t, os.RemoveAll(filepath.Dir(path)))
	}
	must(t, k.DropAll())
	if _, err := os.Stat(filepath.Join(dir, "kept", "n")); !os.IsNotExist(err) {
		t.Errorf("after DropAll: %v", err)
	}
	if _, err := there.Place(t.Context(), second, time.Now().Add(time.Minute)); !errors.Is(err, ErrNotFound) {
		t.Errorf("placing what was deleted: %v", err)
	}
}

// The user's code can report any file as a copy.
func TestOnlyTheReportedCopyIsFetched(t *testing.T) {
	t.Parallel()
	v, dir := borrowVM(t, stacks.Old(t)), checkpointed(t)
	k := NewKeeper(v.client, dir, "n", "test")
	for name, c := range map[string]struct {
		change func(f *KeptFile)
		want   error
	}{
		"another file":       {func(f *KeptFile) { f.Path = "/etc/passwd" }, ErrUntrustedReport},
		"a path out of it":   {func(f *KeptFile) { f.Path = filepath.Dir(f.Path) + "/../x/data.state" }, ErrUntrustedReport},
		"too large":          {func(f *KeptFile) { f.Bytes = maxBytes + 1 }, ErrUntrustedReport},
		"no digest":          {func(f *KeptFile) { f.SHA256 = "" }, ErrUntrustedReport},
		"another digest":     {func(f *KeptFile) { f.SHA256 = strings.Repeat("a", 64) }, transfer.ErrUnexpected},
		"deleted since then": {func(f *KeptFile) { must(t, os.RemoveAll(filepath.Dir(f.Path))) }, ErrGone},
	} {
		f := v.written("a copy")
		c.change(&f)
		if version, err := k.Fetch(t.Context(), f); !errors.Is(err, c.want) || version != "" {
			t.Errorf("%s: %q %v, want %v", name, version, err, c.want)
		}
	}
	if all, err := versions(filepath.Join(dir, "kept", "n")); err != nil || len(all) != 0 {
		t.Errorf("versions %v, %v", all, err)
	}
}

func TestUntrustedReportDownloadsNothing(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]error{
		"state-passwd": ErrUntrustedReport, "state-outside": ErrUntrustedReport, "state-name": ErrUntrustedReport, "state-terabyte": ErrUntrustedReport,
		"state-size": transfer.ErrUnexpected, "state-digest": transfer.ErrUnexpected, "state-list": nil, // the answer is too long
	} {
		t.Run(name, func(t *testing.T) {
			vm := hostilevm.Start(t, name)
			transport := http.DefaultTransport.(*http.Transport).Clone()
			t.Cleanup(transport.CloseIdleConnections)
			c, err := client.New(client.Config{BaseURL: vm.URL, Secret: vm.Secret, Transport: transport})
			must(t, err)
			dir := t.TempDir()
			s, err := Save(t.Context(), c, dir, Options{Name: "s", Until: time.Now().Add(time.Minute)})
			if err == nil || want != nil && !errors.Is(err, want) {
				t.Errorf("%+v, %v", s, err)
			}
			if n := vm.Count("GET " + contract.PathContent); n > 0 {
				t.Errorf("%d parts were downloaded", n)
			}
			walked := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
				if err == nil && strings.Contains(e.Name(), dataFile) {
					t.Errorf("%s exists", path)
				}
				return err
			})
			if walked != nil {
				t.Error(walked)
			}
		})
	}
}

// FuzzReports reads any text as what the kernel displays during an operation. A report that is
// accepted names no file but a state's; progress is only shown.
func FuzzReports(f *testing.F) {
	const place = "/tmp/colab-relay-state-ab12/data.state"
	good := `{"path":"` + place + `","manifest":{"python":"3.12","pickler":"dill","variable_count":1,"variables":[{"name":"x","type":"int"}],"bytes":3,"sha256":"` + digestOf("x") + `"}}`
	f.Add(mime, []byte(good))
	f.Add(mime, []byte(strings.Replace(good, place, "/etc/passwd", 1)))
	f.Add(mime, []byte(strings.Replace(good, place, "/tmp/a/../colab-relay-state-b/data.state", 1)))
	f.Add(mime, []byte(strings.Replace(good, place, "/tmp/colab-relay-state-a/passwd", 1)))
	f.Add(mime, []byte(strings.Replace(good, `"bytes":3`, `"bytes":-3`, 1)))
	f.Add(mime, []byte(`{"path":"`+place+`","free":-1,"python":"3"}`))
	f.Add(mime, []byte(`{"missing":true,"damaged":"its SHA-256 is wrong","variables":[{}],"overwritten":["x"],"warnings":["w\u001b[2J"]}`))
	f.Add(mime, []byte(`{"warnings":[`+strings.Repeat(`"",`, 1000)+`""]}`))
	f.Add(mime, []byte(`{"blob":{"number":1,"sha256":"x","bytes":9223372036854775807}}`))
	f.Add(progressMIME, []byte(`{"variable":"x","number":2,"of":3}`))
	f.Add(progressMIME, []byte(`{"variable":1,"number":"2"}`))
	f.Fuzz(func(t *testing.T, kind string, text []byte) {
		if !json.Valid(text) {
			return // client refuses the page
		}
		var progress Progress
		progress.see(contract.Execution{Events: []contract.Event{{Type: contract.EventDisplayData, Data: map[string]json.RawMessage{kind: text}}}})
		if kind != progressMIME && progress.At != (At{}) {
			t.Fatalf("a display of %q is %+v", kind, progress)
		}
		if s, err := readSaved(t.Context(), text); err == nil {
			checkSaved(t, &s)
		} else if !errors.Is(err, ErrUntrustedReport) {
			t.Error(err)
		}
		var p prepared
		if err := decode(t.Context(), text, &p); err != nil && !errors.Is(err, ErrUntrustedReport) {
			t.Error(err)
		}
	})
}

// checkSaved checks a report that was accepted, in another way than the program does.
func checkSaved(t *testing.T, s *saved) {
	t.Helper()
	folder, file := path.Split(s.Path)
	if !strings.HasPrefix(s.Path, "/") || file != dataFile || !strings.HasPrefix(path.Base(folder), contract.StateFolderPrefix) || strings.Contains(s.Path, "/../") || len(s.Path) > maxPath {
		t.Errorf("the file %q was accepted", s.Path)
	}
	m := s.Manifest
	if m.Bytes <= 0 || m.Bytes > maxBytes || len(m.SHA256) != 64 {
		t.Errorf("%d bytes with the digest %q were accepted", m.Bytes, m.SHA256)
	}
}
