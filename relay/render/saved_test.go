package render

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/shared/contract"
)

// lines returns a log of n events of 4,000 characters, each with its number.
func lines(n int) []contract.Event {
	var l log
	for i := range n {
		l.print(contract.Stdout, fmt.Sprintf("%07d %s\n", i, strings.Repeat("x", 3991)))
	}
	return l
}

// read reads the events before until, as a call does, and counts those it fetched. If
// another call has saved later ones, it reads the newest of these.
func read(t *testing.T, events []contract.Event, until int, opt Options) (View, int) {
	t.Helper()
	opt.Limit = 20_000
	c := New(opt)
	fetched := 0
	for c.Next() < int64(until) {
		c.Skip()
		c.Add(events[c.Next()])
		fetched++
	}
	return c.View(context.WithoutCancel(t.Context()), noBlobs), fetched
}

func checkSaved(t *testing.T, dir string, events []contract.Event) {
	t.Helper()
	var want strings.Builder
	for _, e := range events {
		want.WriteString(e.Text)
	}
	got, err := os.ReadFile(filepath.Join(dir, "stdout.txt"))
	if err != nil || string(got) != want.String() {
		t.Errorf("%d bytes are saved, want %d; %v", len(got), want.Len(), err)
	}
}

func TestSavedTextIsExtendedAndNotFetchedAgain(t *testing.T) {
	dir, all := t.TempDir(), lines(1000)
	for call, until := range []int{200, 200, 201, 600, 1000, 1000} {
		from := int64(10 * call)
		v, fetched := read(t, all, until, Options{Dir: dir, From: from, Instance: "vm"})
		if !v.Truncated || len(v.Files) != 1 || !strings.Contains(v.Stdout, fmt.Sprintf("%07d", until-1)) || v.NextOffset >= from+10 {
			t.Errorf("call %d: next %d, files %v, shown %.100q", call, v.NextOffset, v.Files, v.Stdout)
		}
		if most := []int{200, 25, 25, 425, 425, 25}[call]; fetched > most {
			t.Errorf("call %d fetched %d events, want %d at most", call, fetched, most)
		}
		checkSaved(t, dir, all[:until])
	}
}

// Text that a killed relay wrote but did not record is overwritten.
func TestAnInterruptedSaveIsRepaired(t *testing.T) {
	dir, all := t.TempDir(), lines(300)
	read(t, all, 100, Options{Dir: dir, Instance: "vm"})
	f, err := os.OpenFile(filepath.Join(dir, "stdout.txt"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(f, "torn")
	f.Close()
	read(t, all, len(all), Options{Dir: dir, Instance: "vm"})
	checkSaved(t, dir, all)
}

// The saved text of an execution that has ended is complete. A later answer with other events
// adds nothing, and replaces nothing.
func TestNothingIsAddedAfterTheEnd(t *testing.T) {
	dir, all := t.TempDir(), lines(400)
	end := func(events []contract.Event) View {
		c := New(Options{Dir: dir, Instance: "vm", Limit: 20_000})
		for c.Next() < int64(len(events)) {
			c.Skip()
			c.Add(events[c.Next()])
		}
		c.End()
		return c.View(t.Context(), noBlobs)
	}
	read(t, all, 100, Options{Dir: dir, Instance: "vm"})
	end(all[:200])
	checkSaved(t, dir, all[:200])
	before := states(t, dir)
	for _, later := range [][]contract.Event{all, lines(300), all[:200]} {
		if v := end(later); len(v.Files) != 1 {
			t.Errorf("files %v, notes %q", v.Files, v.Notes)
		}
	}
	read(t, all, 400, Options{Dir: dir, Instance: "vm"})
	checkSaved(t, dir, all[:200])
	if after := states(t, dir); !maps.Equal(before, after) {
		t.Errorf("it wrote\n%v\nover\n%v", after, before)
	}
}

// The folder of another instance's execution is another one, also if it has the same id.
func TestEachInstanceHasItsFolder(t *testing.T) {
	folders := map[string]bool{}
	for _, of := range [][2]string{{"a", "run"}, {"b", "run"}, {"a", "Run"}, {"", "a\x00run"}, {"a", "../run"}, {"a", ""}} {
		dir := Folder("/saved", of[0], of[1])
		if filepath.Dir(dir) != filepath.Clean("/saved/executions") || folders[dir] {
			t.Errorf("%q has the folder %q", of, dir)
		}
		folders[dir] = true
	}
}
