package notebook

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"colabrelay/shared/tier"
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

// externalProgram is another process that makes the edits it reads from its input, one a line,
// and answers each when it is done.
func externalProgram(t *testing.T) (do func(path, source string, inPlace bool) error) {
	t.Helper()
	cmd := child(t, "TestExternalProgram")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = in.Close(), cmd.Wait() })
	answers := bufio.NewScanner(out)
	return func(path, source string, inPlace bool) error {
		_, _ = fmt.Fprintf(in, "%s\t%s\t%t\n", path, source, inPlace)
		for answers.Scan() {
			if answer, ok := strings.CutPrefix(answers.Text(), "answer "); ok && answer == "done" {
				return nil
			} else if ok {
				return errors.New(answer)
			}
		}
		return errors.New("the other program has ended")
	}
}

// child returns this test program, to run one test as a helper of another one.
func child(t *testing.T, test string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+test+"$")
	cmd.Env = append(os.Environ(), "NOTEBOOK_TEST_CHILD="+test+"\n"+strings.Join(args, "\n"))
	cmd.Stderr = os.Stderr
	return cmd
}

// asChild returns the arguments if this process is a child that runs a test as a helper.
func asChild(t *testing.T) (args []string, ok bool) {
	t.Helper()
	args = strings.Split(os.Getenv("NOTEBOOK_TEST_CHILD"), "\n")
	return args[1:], args[0] == t.Name()
}

// TestExternalProgram is the other process of externalProgram.
func TestExternalProgram(t *testing.T) {
	if _, ok := asChild(t); !ok {
		return
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		parts := strings.Split(lines.Text(), "\t")
		if err := external(parts[0], parts[1], parts[2] == "true"); err != nil {
			fmt.Println("answer", err)
		} else {
			fmt.Println("answer done")
		}
	}
}

// Other programs save the notebook between our read and our write, at each step. Neither their
// changes nor ours may be lost.
func TestEditsOfOtherProgramsSurviveOurs(t *testing.T) {
	tier.Long(t)
	rounds := 60
	process := externalProgram(t)
	r := rand.New(rand.NewPCG(1, 2))
	f := newFile(t)
	var want []string
	for round := range rounds {
		n, noted := 0, false
		disturb := func() {
			if r.IntN(3) > 0 {
				return
			}
			do := external
			if r.IntN(2) == 0 {
				do = process
			}
			n++
			noted = true
			source := fmt.Sprintf("theirs %d.%d", round, n)
			if err := do(f.Path(), source, r.IntN(2) == 0); err != nil {
				t.Fatal(err)
			}
			want = append(want, source)
		}
		f.beforeCheck, f.beforeReplace = disturb, disturb
		source := fmt.Sprintf("ours %d", round)
		done := edit(t, f, func(d *Document) error { disturb(); return add(source)(d) })
		want = append(want, source)
		if noted != (len(done.Notes) > 0) {
			t.Fatalf("round %d: notes %q after %d edits", round, done.Notes, n)
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

func TestAnEditGivesUpWhenOthersAlwaysSave(t *testing.T) {
	f, n := newFile(t), 0
	f.beforeCheck = func() {
		if n++; external(f.Path(), fmt.Sprint(n), true) != nil {
			t.Error("cannot edit")
		}
	}
	if _, err := f.Edit(t.Context(), "", add("ours")); !errors.Is(err, ErrRestless) || n != maxAttempts {
		t.Errorf("%v after %d", err, n)
	}
	if got := sources(t, f.Path()); len(got) != maxAttempts {
		t.Errorf("%q", got)
	}
}

func TestRelaysThatEditAtTheSameTimeLoseNothing(t *testing.T) {
	tier.Long(t)
	f := newFile(t)
	var all sync.WaitGroup
	for n := range 3 {
		all.Go(func() {
			if out, err := child(t, "TestRelayThatEdits", f.Path(), fmt.Sprint(n)).Output(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
		all.Go(func() {
			for i := range 10 {
				_, err := f.Edit(t.Context(), "", add(fmt.Sprintf("own %d.%d", n, i)))
				if _, readErr := f.Read(); err != nil || readErr != nil {
					t.Error(err, readErr)
				}
			}
		})
	}
	all.Wait()
	if got := sources(t, f.Path()); len(got) != 60 {
		t.Errorf("%d of 60 cells", len(got))
	}
}

// TestRelayThatEdits is a process that adds ten cells.
func TestRelayThatEdits(t *testing.T) {
	args, ok := asChild(t)
	if !ok {
		return
	}
	f := open(t, args[0])
	for i := range 10 {
		edit(t, f, add(fmt.Sprintf("%s.%d", args[1], i)))
	}
}

// A process that is killed while it writes leaves the old or the new file, and at most one
// temporary file, which the next edit removes.
func TestAKilledEditLeavesTheOldOrTheNewFile(t *testing.T) {
	tier.Long(t)
	kills := 8
	f := newFile(t, strings.Repeat("# a long line\n", 50_000))
	r := rand.New(rand.NewPCG(3, 4))
	seen := 0
	for range kills {
		cmd := child(t, "TestEditsUntilKilled", f.Path(), fmt.Sprint(seen))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines, last := bufio.NewScanner(out), ""
		for range 1 + r.IntN(4) {
			if lines.Scan() {
				last = lines.Text()
			}
		}
		<-time.After(time.Duration(r.IntN(4_000)) * time.Microsecond) // at any step of the next edit
		_ = cmd.Process.Kill()
		for lines.Scan() {
			last = lines.Text()
		}
		_ = cmd.Wait()
		confirmed := 0
		if _, err := fmt.Sscan(last, &confirmed); err != nil {
			t.Fatalf("%q: %v", last, err)
		}
		got := sources(t, f.Path())[1:]
		if n := len(got); n != confirmed && n != confirmed+1 {
			t.Fatalf("%d edits were confirmed, %d are there", confirmed, n)
		}
		for i, source := range got {
			if source != fmt.Sprint(i) {
				t.Fatalf("cell %d is %q", i, source)
			}
		}
		if left := hidden(t, f.Path()); len(left) > 1 {
			t.Fatalf("%q are left", left)
		}
		seen = len(got)
	}
	edit(t, f, add("end"))
	if left := hidden(t, f.Path()); len(left) > 0 {
		t.Errorf("%q are left", left)
	}
}

// TestEditsUntilKilled is a process that adds numbered cells and confirms each.
func TestEditsUntilKilled(t *testing.T) {
	args, ok := asChild(t)
	if !ok {
		return
	}
	n := 0
	if _, err := fmt.Sscan(args[1], &n); err != nil {
		t.Fatal(err)
	}
	for f := open(t, args[0]); n < 100_000; n++ {
		edit(t, f, add(fmt.Sprint(n)))
		fmt.Println(n + 1)
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
