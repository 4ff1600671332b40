package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

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

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
