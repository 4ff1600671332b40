package kernelstate

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"colabrelay/relay/transfer"
	"colabrelay/shared/stacks"
)

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
	if all, err := versions(filepath.Join(dir, "kept", "n")); err != nil || !slices.Equal(all, []version{{second, 2}}) {
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
