package main

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/tier"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A sample of make load: all its checks, with few relays. None is refused, because they are too
// few for any limit.
func TestACrowdOfRelaysLeavesNothingBehind(t *testing.T) {
	tier.Long(t)
	var out harness.Output
	err := crowd(t.Context(), options{relays: 2, rounds: 1, seed: 1}, &out)
	t.Logf("\n%s", &out)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "0 queue_full, 0 rate_limited") {
		t.Error("calls were refused")
	}
}

func TestRunsThatAnswersContradictAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		file string
		want string
	}{
		"as answered":   {"a\nmaybe\n", ""},
		"missing":       {"maybe\n", `"a" did not run`},
		"twice":         {"a\na\n", `"a" ran 2 times`},
		"refused":       {"a\nrefused\n", `"refused" ran`},
		"nobody's":      {"a\nother\n", `"other" ran, but no relay`},
		"a torn line":   {"a\nmay", `"may" ran, but no relay`},
		"several wrong": {"refused\nrefused\n", "3 contradictions"},
	} {
		t.Run(name, func(t *testing.T) {
			r := runs{path: filepath.Join(t.TempDir(), "ran.txt")}
			r.expect("a", once)
			r.expect("maybe", atMostOnce)
			r.expect("refused", atMostOnce)
			r.expect("refused", never)
			write(t, r.path, c.file)
			_, err := r.check()
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func TestRefusalsBelowEveryLimitAreNotHonest(t *testing.T) {
	wire, err := harness.NewWire("127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	defer wire.Close()
	for calls, honest := range map[int]bool{placesInQueue - 1: false, placesInQueue: true} {
		w := world{tally: newTally(), wire: wire}
		for range calls {
			defer w.tally.begin()("")
		}
		w.tally.begin()(contract.CodeQueueFull)
		w.tally.begin()(contract.CodeRateLimited)
		w.tally.most = calls
		if err := w.honest(); (err == nil) != honest {
			t.Errorf("refusals with %d calls at a time: %v", calls, err)
		}
	}
}

func TestAnUnfairShareIsFound(t *testing.T) {
	for fewest, fair := range map[int]bool{9: false, 10: true} {
		w := world{relays: []*relay{{workers: []*worker{{done: 60}, {done: 40}}}, {workers: []*worker{{done: fewest}}}}}
		if err := w.fair(&bytes.Buffer{}); (err == nil) != fair {
			t.Errorf("%d and 100 operations: %v", fewest, err)
		}
	}
}

func TestWhatIsLeftIsNamed(t *testing.T) {
	before := holdings{executor: harness.Process{Sockets: 5, Files: []string{"/vm/lock"}}, temporary: []string{"kernel"}}
	after := before
	if more := after.more(before); len(more) != 0 {
		t.Errorf("nothing is left, but: %q", more)
	}
	after.executor.Sockets, after.executor.Files = 6, append(logs(mostLogs+1), "/vm/lock", "/vm/upload")
	after.kernel.Children, after.temporary, after.unfinished = []int{1}, []string{"kernel", "part"}, []string{"/vm/x.colab-part"}
	want := []string{
		"2 open files of the executor but logs of runs instead of 1", "6 sockets of the executor instead of 5", "1 child processes of the kernel instead of 0",
		"the temporary file part", "18 open logs of the executor, over 17", "/vm/x.colab-part",
	}
	if more := after.more(before); strings.Join(more, "\n") != strings.Join(want, "\n") {
		t.Errorf("left:\n%s\nwant:\n%s", strings.Join(more, "\n"), strings.Join(want, "\n"))
	}
}

func logs(n int) (all []string) {
	for range n {
		all = append(all, "/vm/events-0-0.ndjson")
	}
	return all
}

func TestMoreGoroutinesAreFound(t *testing.T) {
	usual := census{"a": 2, "b": 1}
	if err := (census{"a": 2}).more("x", usual); err != nil {
		t.Error(err)
	}
	for _, c := range []census{{"a": 3}, {"c": 1}, {"net/http.(*Transport).dialConn": 65}} {
		if err := c.more("x", usual); err == nil {
			t.Errorf("%v is no more than %v", c, usual)
		}
	}
}

func TestGrowthIsReported(t *testing.T) {
	const samples = 20
	for name, c := range map[string]struct {
		memory      func(n int) float64 // MiB
		descriptors func(n int) int
		want        string
	}{
		"flat":         {func(int) float64 { return 30 }, func(n int) int { return 10 + n%3 }, ""},
		"warms up":     {func(n int) float64 { return 30 + 30*float64(min(n, samples/4)) }, func(int) int { return 10 }, ""},
		"falls":        {func(n int) float64 { return 90 - float64(n) }, func(int) int { return 10 }, ""},
		"memory grows": {func(n int) float64 { return 30 + float64(n) }, func(int) int { return 10 }, "grew by 14.0 MiB"},
		"files grow":   {func(int) float64 { return 30 }, func(n int) int { return 10 + n/2 }, "5 descriptors more"},
	} {
		t.Run(name, func(t *testing.T) {
			h := history{out: &bytes.Buffer{}, watched: []*watched{{name: "executor", ours: true}}}
			for n := range samples {
				h.hours = append(h.hours, float64(n)/60)
				h.watched[0].samples = append(h.watched[0].samples, harness.Process{Memory: harness.Memory{Now: c.memory(n)}, Descriptors: c.descriptors(n)})
			}
			err := h.report()
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
	if err := (&history{hours: make([]float64, 7)}).report(); err == nil {
		t.Error("seven samples were enough")
	}
}

func TestSlope(t *testing.T) {
	if got := slope([]float64{0, 1, 2, 3}, []float64{5, 7, 9, 11}); math.Abs(got-2) > 1e-9 {
		t.Errorf("slope %v, want 2", got)
	}
	if got := slope([]float64{0, 1, 2, 3}, []float64{1, 2, 2, 1}); math.Abs(got) > 1e-9 {
		t.Errorf("slope %v, want 0", got)
	}
}

func TestArgumentsThatCannotWork(t *testing.T) {
	for _, args := range [][]string{{"-unknown"}, {"-relays", "0.5"}, {"-relays", "1001"}, {"-relays", "-1"}, {"-minutes", "0"}, {"-minutes", "1441"}, {"more"}} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), args, &stdout, &stderr); code != 2 || stdout.Len() > 0 || stderr.Len() == 0 {
			t.Errorf("%q: exit code %d, stdout %q, stderr %q", args, code, &stdout, &stderr)
		}
	}
}

func TestDefaultsDependOnTheMode(t *testing.T) {
	for args, relays := range map[string]int{"-minutes=60": 100, "-steady": 3, "-relays=1000": 1000} {
		o, err := parseOptions([]string{args}, &bytes.Buffer{})
		if err != nil || o.relays != relays || o.sample <= 0 || o.sample > time.Minute {
			t.Errorf("%s: %+v, %v", args, o, err)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
