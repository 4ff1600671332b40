package e2e

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"colabrelay/shared/auth"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/within"
)

// pageURL is the link in what `colab-relay page open` prints.
var pageURL = regexp.MustCompile(`https://colab\.research\.google\.com/\S+`)

// One command starts the executor through the page, and pairs it. Neither the secret nor the token
// is anywhere but in the two files that hold them. The cell that is left ends the executor.
func TestOneCommandPairsTheVMOfColabsPage(t *testing.T) {
	p := newColabPage(t)
	var out, errs harness.Output
	cmd := exec.CommandContext(within.Context(t), binaries.Relay, "page", "open", "--no-browser", "--start-executor", "--status-cell", "--json")
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
	if cells := p.cells(); len(cells) != 2 || !strings.Contains(cells[1], "stop this cell to stop it") {
		t.Errorf("the notebook has the cells %q", cells)
	}
	run := exec.CommandContext(within.Context(t), binaries.Relay, "run", "-c", "print(6 * 7)")
	run.Env = cmd.Env
	if text, err := run.CombinedOutput(); err != nil || !strings.Contains(string(text), "42") {
		t.Errorf("run: %v\n%s", err, text)
	}
	r, err := p.store().Get("default")
	must(t, err)
	if auths := p.edge.Auths(); len(auths) == 0 || auths[0].Extra.Authtoken != p.token {
		t.Error("the executor did not log in with the relay's token")
	}
	var seen strings.Builder
	for _, tab := range p.tabs {
		seen.WriteString(tab.Everything())
	}
	all := places{"the page": []byte(seen.String()), "stdout": []byte(out.String()), "stderr": []byte(errs.String())}
	all.addProcesses()
	all.addFiles(t, p.laptop, p.tokenFile(), filepath.Join(p.laptop, "config", "colab-relay", "runtimes.json"))
	programs, err := filepath.Glob(filepath.Join(p.vm, "home", ".cache", "colab-relay", "*", "executor")) // as released
	if err != nil || len(programs) == 0 {
		t.Errorf("the executor is not where its cell puts it: %v", err)
	}
	all.addFiles(t, p.vm, programs...)
	all.hold(t, map[string]string{"secret": r.Secret.Reveal(), "authtoken": p.token, "pairing string": auth.Pairing{URL: r.URL, Secret: r.Secret}.String()})
	must(t, p.kernel.Interrupt()) // the person stops the cell
	must(t, harness.Poll(within.Context(t), func() (bool, error) { return len(p.executors()) == 0, nil }))
}
