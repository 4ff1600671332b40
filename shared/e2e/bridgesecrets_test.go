package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"colabrelay/shared/auth"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

var startExecutorArgs = map[string]any{"start_executor": true}

func TestOneCallPairsAndNothingShowsASecret(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	p := newColabPage(t)
	a := p.agent()
	_, end := a.connect(startExecutorArgs)
	want(t, end(), map[string]any{"success": true, "connected": true, "executor": "default"})
	want(t, quick(t, a.Host, "6 * 7"), map[string]any{"success": true, "result": "42", "runtime": "default"})
	if !slices.Equal(p.cells(), []string{"x = 1"}) {
		t.Errorf("the notebook has the cells %q", p.cells())
	}
	r := p.paired("default")
	if auths := p.edge.Auths(); len(auths) == 0 || auths[0].Extra.Authtoken != p.token {
		t.Error("the executor did not log in with the relay's token")
	}
	ctx := within.Context(t)
	for _, args := range []map[string]any{startExecutorArgs, {"start_executor": true, "status_cell": true}, startExecutorArgs} {
		want(t, a.repeat(ctx, args), map[string]any{"success": true, "executor": "default"})
		if len(p.executors()) != 1 {
			t.Errorf("the executors %v run", p.executors())
		}
	}
	if cells := p.cells(); len(cells) != 2 || !strings.Contains(cells[1], "stop this cell to stop it") {
		t.Errorf("the notebook has the cells %q", cells)
	}
	p.showNo(a, 1, map[string]string{
		"secret": r.Secret.Reveal(), "authtoken": p.token, "pairing string": auth.Pairing{URL: r.URL, Secret: r.Secret}.String(),
	})
	must(t, p.kernel.Interrupt()) // the person stops the status cell
	must(t, harness.Poll(within.Context(t), func() (bool, error) { return len(p.executors()) == 0, nil }))
}

// keyShown matches the public keys in the cells and outputs of an enrollment.
var keyShown = regexp.MustCompile(`(?:RELAY_KEY = |"key": )\\*"([A-Za-z0-9_-]{43})`)

// showNo looks for secrets, and for the private keys of the keys that the page saw, in all that
// page, relay, processes and files show. Only two files may hold them.
func (p *colabPage) showNo(a *agent, enrollments int, secrets map[string]string) {
	p.t.Helper()
	all := places{"the relay's log": []byte(a.Stderr.String())}
	var seen strings.Builder
	for _, tab := range p.tabs {
		seen.WriteString(tab.Everything())
	}
	all["the page"] = []byte(seen.String())
	stdio, err := os.ReadFile(a.stdio)
	must(p.t, err)
	all["what the host got"] = stdio
	all.addProcesses()
	all.addFiles(p.t, p.laptop, p.tokenFile(), filepath.Join(p.laptop, "config", "colab-relay", "runtimes.json"))
	programs, err := filepath.Glob(filepath.Join(p.vm, "home", ".cache", "colab-relay", "*", "executor")) // as released
	must(p.t, err)
	if len(programs) == 0 {
		p.t.Error("the executor is not where its cell puts it")
	}
	all.addFiles(p.t, p.vm, programs...)
	var keys []string
	for _, match := range keyShown.FindAllStringSubmatch(strings.ReplaceAll(seen.String(), `\`, ""), -1) {
		keys = append(keys, match[1])
	}
	slices.Sort(keys)
	if keys = slices.Compact(keys); len(keys) != 2*enrollments {
		p.t.Errorf("the page saw %d public keys in %d enrollments", len(keys), enrollments)
	}
	all.hold(p.t, secrets, keys...)
}
