package notebook

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

// external is another program that edits a notebook without our lock: it reads the file, adds a
// cell at the front, and saves it in place or by a rename.
func external(path, source string, inPlace bool) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	d, err := Parse(text)
	if err != nil {
		return err
	}
	if _, err := d.Insert(0, NewCell{Type: Code, Source: source}); err != nil {
		return err
	}
	if inPlace {
		return os.WriteFile(path, d.Bytes(), 0o600)
	}
	temp := path + ".external"
	if err := os.WriteFile(temp, d.Bytes(), 0o600); err != nil {
		return err
	}
	return os.Rename(temp, path)
}

// Other programs save the notebook between our read and our write, at each step. Neither their
// changes nor ours may be lost.
func TestEditsOfOtherProgramsSurviveOurs(t *testing.T) {
	f := newFile(t)
	var want []string
	for round := range 16 { // a bit for each step, and one for the way in which they save
		disturb := func(step int) {
			if round>>step&1 == 0 {
				return
			}
			source := fmt.Sprintf("theirs %d.%d.%d", round, step, len(want))
			if err := external(f.Path(), source, round>>3 == 0); err != nil {
				t.Fatal(err)
			}
			want = append(want, source)
		}
		once := [3]func(){}
		for step := range once {
			once[step] = sync.OnceFunc(func() { disturb(step) })
		}
		f.beforeCheck, f.beforeReplace = once[1], once[2]
		source := fmt.Sprintf("ours %d", round)
		done := edit(t, f, func(d *Document) error { once[0](); return add(source)(d) })
		want = append(want, source)
		if noted := round&7 != 0; noted != (len(done.Notes) > 0) {
			t.Fatalf("round %d: notes %q", round, done.Notes)
		}
	}
	got := sources(t, f.Path())
	slices.Sort(got)
	if slices.Sort(want); !slices.Equal(got, want) {
		t.Errorf("%d cells, want %d:\n%q\n%q", len(got), len(want), got, want)
	}
	if left := hidden(t, f.Path()); len(left) > 0 {
		t.Errorf("%q are left", left)
	}
}

// A system that cannot exchange names compares the file right before it replaces it.
func TestASystemWithoutExchangesReplacesTheFile(t *testing.T) {
	f := newFile(t, "1")
	before, err := f.load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	temp := filepath.Join(filepath.Dir(f.Path()), "temp")
	writeFile(t, temp, []byte("new"))
	swap := exchangeNames
	exchangeNames = func(string, string) error { return errors.ErrUnsupported }
	defer func() { exchangeNames = swap }()
	if err := f.exchange(temp, before.info, before); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(f.Path()); err != nil || !bytes.Equal(text, []byte("new")) {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := os.Stat(temp); err == nil {
		t.Error("the temporary file is left")
	}
}
