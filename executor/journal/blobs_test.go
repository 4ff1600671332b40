package journal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

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
