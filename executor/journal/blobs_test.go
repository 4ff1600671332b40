package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"

	"colabrelay/shared/contract"
)

func putBlob(t *testing.T, r *Record, text string) contract.Blob {
	t.Helper()
	blob, err := r.PutBlob(int64(len(text)), func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return blob
}

func readBlob(t *testing.T, j *Journal, id string, number int) string {
	t.Helper()
	f, err := j.Blob(id, number)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestBlobsAreNumberedAndRepeatedOnesKeptOnce(t *testing.T) {
	dir := t.TempDir()
	j := openIn(t, dir, Limits{})
	r := create(t, j, contract.Submit{RequestID: "r"})
	other := create(t, j, contract.Submit{RequestID: "other"})
	for i, text := range []string{"one", "two!", "one", "", "two!"} {
		if got, want := putBlob(t, r, text).Number, []int{1, 2, 1, 3, 2}[i]; got != want {
			t.Errorf("%q has number %d, want %d", text, got, want)
		}
	}
	if got := putBlob(t, other, "two!").Number; got != 1 {
		t.Errorf("the first blob of another execution has number %d", got)
	}
	if files, err := os.ReadDir(r.blobs.folder()); err != nil || len(files) != 3 || r.blobs.size() != int64(len("onetwo!")) {
		t.Errorf("files %v of %d bytes, %v", files, r.blobs.size(), err)
	}
	r.Finish(contract.StatusSucceeded, "", 0)
	for when, j := range map[string]*Journal{"immediately": j, "after a restart": openIn(t, dir, Limits{})} {
		if got := readBlob(t, j, r.ID, 2); got != "two!" {
			t.Errorf("%s, blob 2 is %q", when, got)
		}
		for _, number := range []int{-1, 0, 4, contract.MaxBlobs + 1} {
			if _, err := j.Blob(r.ID, number); !errors.Is(err, ErrNoBlob) {
				t.Errorf("%s, blob %d: %v", when, number, err)
			}
		}
	}
}

func TestNoNumberIsUsedTwice(t *testing.T) {
	r := create(t, openIn(t, t.TempDir(), Limits{}), contract.Submit{RequestID: "r"})
	numbers := []int{putBlob(t, r, "a").Number}
	r.CloseLog() // forgets which payloads there are
	numbers = append(numbers, putBlob(t, r, "a").Number)
	os.RemoveAll(r.blobs.folder()) // by a user
	numbers = append(numbers, putBlob(t, r, "a").Number)
	r.dropOutput()
	numbers = append(numbers, putBlob(t, r, "a").Number)
	r.blobs = openBlobs(r.dir, 100)
	numbers = append(numbers, putBlob(t, r, "a").Number)
	if got := fmt.Sprint(numbers); got != "[1 2 3 4 5]" {
		t.Errorf("numbers %s", got)
	}
}

func TestBlobsAreBoundedInNumberAndBytes(t *testing.T) {
	r := create(t, openIn(t, t.TempDir(), Limits{LogBytes: 10}), contract.Submit{RequestID: "r"})
	putBlob(t, r, "x")
	over := func(io.Writer) error { t.Error("a payload over the bound is written"); return nil }
	if _, err := r.PutBlob(10, over); !errors.Is(err, errBlobsFull) {
		t.Errorf("beyond the bound in bytes: %v", err)
	}
	next := r.blobs.path(contract.MaxBlobs - 1)
	if err := os.Rename(r.blobs.path(1), next); err != nil {
		t.Fatal(err)
	}
	r.blobs = openBlobs(r.dir, 10)
	if got := putBlob(t, r, "y").Number; got != contract.MaxBlobs {
		t.Errorf("the last number is %d", got)
	}
	if _, err := r.PutBlob(1, over); !errors.Is(err, errBlobsFull) {
		t.Errorf("one blob too many: %v", err)
	}
}

// Protocol 2 named the files by their SHA-256, and its references have no number.
func TestFoldersOfEarlierReleasesStayReadable(t *testing.T) {
	dir := t.TempDir()
	j := openIn(t, dir, Limits{})
	r := create(t, j, contract.Submit{RequestID: "r"})
	sums := []string{strings.Repeat("ab", 32), strings.Repeat("1", 64)}
	putBlob(t, r, "kept")
	if err := os.Rename(r.blobs.path(1), filepath.Join(r.blobs.folder(), sums[0])); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.blobs.folder(), sums[1]), []byte("digits"), 0o600); err != nil {
		t.Fatal(err)
	}
	ref := json.RawMessage(`{"blob":{"sha256":"` + sums[0] + `","bytes":4}}`)
	if err := r.Append(contract.Event{Type: contract.EventDisplayData, Data: map[string]json.RawMessage{"image/png": ref}}); err != nil {
		t.Fatal(err)
	}
	r.Finish(contract.StatusSucceeded, "", 0)

	again := openIn(t, dir, Limits{})
	if x := read(t, again, r.ID); len(x.Events) != 1 || string(x.Events[0].Data["image/png"]) != string(ref) {
		t.Errorf("read as %+v", x)
	}
	found, err := again.Find(r.ID)
	if err != nil || found.blobs.size() != int64(len("kept"+"digits")) {
		t.Errorf("its blobs have %d bytes, %v", found.blobs.size(), err)
	}
	for _, number := range []int{0, 1, 2} {
		if _, err := again.Blob(r.ID, number); !errors.Is(err, ErrNoBlob) {
			t.Errorf("blob %d: %v", number, err)
		}
	}
}

// A version 7 UUID tells when it was made.
func TestExecutionIDsAreRandom(t *testing.T) {
	j := openIn(t, t.TempDir(), Limits{})
	for n := range 3 {
		r := create(t, j, contract.Submit{RequestID: strconv.Itoa(n)})
		if id, err := uuid.Parse(r.ID); err != nil || id.Version() != 4 {
			t.Errorf("%s has version %d, %v", r.ID, id.Version(), err)
		}
		j.MakeSpare() // the next one
	}
}
