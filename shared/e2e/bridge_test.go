package e2e

import (
	"encoding/json"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/within"
)

// pageURL is the link in what `colab-relay page open` prints.
var pageURL = regexp.MustCompile(`https://colab\.research\.google\.com/\S+`)

func TestOneCommandPairsTheVMOfColabsPage(t *testing.T) {
	p := newColabPage(t)
	var out, errs harness.Output
	cmd := exec.CommandContext(within.Context(t), binaries.Relay, "page", "open", "--no-browser", "--start-executor", "--json")
	cmd.Env = append([]string{"PATH=/usr/bin:/bin"}, p.env()...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	must(t, cmd.Start())
	must(t, harness.Poll(within.Context(t), func() (bool, error) { return pageURL.MatchString(errs.String()), nil }))
	p.open(pageURL.FindString(errs.String()))
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	var answer struct{ Executor string }
	must(t, json.Unmarshal([]byte(out.String()), &answer))
	if answer.Executor != "default" {
		t.Errorf("answer %s", out.String())
	}
	if !slices.Equal(p.cells(), []string{"x = 1"}) {
		t.Errorf("the notebook has the cells %q", p.cells())
	}
	run := exec.CommandContext(within.Context(t), binaries.Relay, "run", "-c", "print(6 * 7)")
	run.Env = cmd.Env
	if text, err := run.CombinedOutput(); err != nil || !strings.Contains(string(text), "42") {
		t.Errorf("run: %v\n%s", err, text)
	}
}
