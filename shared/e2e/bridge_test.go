package e2e

import (
	"context"
	"encoding/json"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/e2e/standin"
	"colabrelay/shared/enrollment"
	"colabrelay/shared/tier"
)

// pageURL is the link in what `colab-relay page open` prints.
var pageURL = regexp.MustCompile(`https://colab\.research\.google\.com/\S+`)

func TestOneCommandPairsTheVMOfColabsPage(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	p := newColabPage(t)
	var out, errs harness.Output
	cmd := exec.CommandContext(within(t), binaries.Relay, "page", "open", "--no-browser", "--start-executor", "--json")
	cmd.Env = append([]string{"PATH=/usr/bin:/bin"}, p.env()...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	must(t, cmd.Start())
	must(t, harness.Poll(within(t), func() (bool, error) { return pageURL.MatchString(errs.String()), nil }))
	p.open(pageURL.FindString(errs.String()))
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	var answer struct {
		Executor struct {
			Runtime string `json:"runtime"`
			URL     string `json:"colab_url"`
		} `json:"executor"`
	}
	must(t, json.Unmarshal([]byte(out.String()), &answer))
	if answer.Executor.Runtime != "default" || answer.Executor.URL != p.edge.URL() {
		t.Errorf("answer %s", out.String())
	}
	if !slices.Equal(p.cells(), []string{"x = 1"}) {
		t.Errorf("the notebook has the cells %q", p.cells())
	}
	run := exec.CommandContext(within(t), binaries.Relay, "run", "-c", "print(6 * 7)")
	run.Env = cmd.Env
	if text, err := run.CombinedOutput(); err != nil || !strings.Contains(string(text), "42") {
		t.Errorf("run: %v\n%s", err, text)
	}
}

// blockAt makes the notebook's kernel hold the output of the cell with these words in its title
// until the relay's connection ends. It returns a channel that gets a value when that begins.
func (p *colabPage) blockAt(title string) <-chan struct{} {
	reached := make(chan struct{}, 10)
	p.options.Execute = func(ctx context.Context, code string) ([]map[string]any, int) {
		outputs, count := p.kernel.Execute(ctx, code)
		if first, _, _ := strings.Cut(code, "\n"); strings.Contains(first, title) {
			reached <- struct{}{}
			<-ctx.Done()
		}
		return outputs, count
	}
	return reached
}

// The relay is killed before the executor got its grant, or while it already serves with the
// secret, which then nobody knows. The next relay starts clean.
func TestARelayThatIsKilledInTheMiddle(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	for name, title := range map[string]string{"before the grant": "starts the executor", "after the grant": "pairs the executor"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newColabPage(t)
			reached := p.blockAt(title)
			killed := p.agent()
			tab, _ := killed.connect(startExecutorArgs)
			select {
			case <-reached:
			case <-within(t).Done():
				t.Fatal("the cell did not run")
			}
			killed.Kill()
			<-tab.Done()
			before := p.executors()
			if len(before) != 1 || len(p.cells()) != 2 {
				t.Fatalf("executors %v, cells %q", before, p.cells())
			}
			p.options.Execute = p.kernel.Execute
			a := p.agent()
			_, end := a.connect(startExecutorArgs)
			want(t, end(), map[string]any{"success": true, "executor": "default"})
			want(t, quick(t, a.Host, "6 * 7"), map[string]any{"success": true, "result": "42"})
			if !slices.Equal(p.cells(), []string{"x = 1"}) {
				t.Errorf("the notebook has the cells %q", p.cells())
			}
			if title == "pairs the executor" {
				if after := p.executors(); len(after) != 1 || after[0] == before[0] {
					t.Errorf("the executors %v run, the one of the killed relay was %v", after, before)
				}
			}
			r := p.paired("default")
			p.showNo(a, 2, map[string]string{"secret": r.Secret.Reveal(), "authtoken": p.token})
		})
	}
}

// A tab changes a key on one side. The real executor refuses the grant, nothing is paired, and
// no cell stays.
func TestKeysThatATabChangesPairNothing(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	p := newColabPage(t)
	offer, err := enrollment.NewOffer()
	must(t, err)
	toVM := regexp.MustCompile(`RELAY_KEY = "[^"]+"`)
	fromVM := regexp.MustCompile(`"key": "[^"]+"`)
	swap := func(change func(string) string) func([]map[string]any) []map[string]any {
		return func(outputs []map[string]any) []map[string]any {
			for _, o := range outputs {
				if lines, ok := o["text"].([]string); ok {
					o["text"] = []string{change(strings.Join(lines, ""))}
				}
			}
			return outputs
		}
	}
	a := p.agent()
	for name, o := range map[string]standin.Options{
		"of the relay": {Swap: func(source string) string {
			return toVM.ReplaceAllString(source, `RELAY_KEY = "`+offer.PublicKey()+`"`)
		}},
		"of the executor": {SwapOutputs: swap(func(text string) string { return fromVM.ReplaceAllString(text, `"key": "`+offer.PublicKey()+`"`) })},
	} {
		o.Notebook, o.Execute = p.notebook, p.kernel.Execute
		p.options = o
		tab, end := a.connect(startExecutorArgs)
		got := end()
		if got.Error() != "executor_not_started" || !strings.Contains(got.Text, "the grant does not open") {
			t.Errorf("the key %s: %s", name, got.Text)
		}
		if !slices.Equal(p.cells(), []string{"x = 1"}) {
			t.Errorf("the key %s: the notebook has the cells %q", name, p.cells())
		}
		tab.Close()
		must(t, harness.Poll(within(t), func() (bool, error) {
			return call(t, a.Host, "get_cells", nil).Error() == "no_tab", nil // the relay has seen the end
		}))
	}
	if all, err := p.store().List(); err != nil || len(all) > 0 {
		t.Errorf("paired: %v, %v", all, err)
	}
	p.showNo(a, 2, map[string]string{"authtoken": p.token})
}
