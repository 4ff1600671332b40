package e2e

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"colabrelay/executor/tunnel/ngroktest"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/tier"
)

// printed returns the pairing string that an executor printed, as arguments of the relay.
func printed(t *testing.T, e *harness.Executor) []string {
	t.Helper()
	var line []string
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := harness.Poll(ctx, func() (bool, error) { // the console may lag behind the ready file
		line = regexp.MustCompile(`(?m)^\s+(colab-relay:\S+)$`).FindStringSubmatch(e.Output.String())
		return line != nil, nil
	}); err != nil {
		t.Fatalf("no pairing string in:\n%s", e.Output)
	}
	return []string{"pair", line[1]}
}

func TestARunningRelayUsesNewPairingsImmediately(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	l := newLaptop(t)
	h := l.host() // before anything is paired
	a := quick(t, h, "1")
	if a.Error() != "not_configured" || !strings.Contains(a.Text, "relay pair") {
		t.Errorf("with nothing paired: %s", a.Text)
	}

	first := colab{t: t, edge: ngroktest.Start(t)}.newVM()
	l.relay(printed(t, first)...)
	want(t, quick(t, h, "where = 'first'\nwhere"), map[string]any{"success": true, "result": "'first'", "runtime": "default"})

	first.Kill()
	second := colab{t: t, edge: ngroktest.Start(t)}.newVM() // another URL, another secret
	if second.Ready.URL == first.Ready.URL || second.Ready.KeyID == first.Ready.KeyID {
		t.Fatalf("first VM %+v, second %+v: want all fields to differ", first.Ready, second.Ready)
	}
	if out := l.relay(printed(t, second)...); !strings.Contains(out, second.Ready.URL) {
		t.Errorf("relay pair printed %q", out)
	}
	a = quick(t, h, "'where' in globals()")
	want(t, a, map[string]any{"success": true, "result": "False", "runtime": "default"})
	saysNewVM(t, a)

	third := colab{t: t, edge: ngroktest.Start(t)}.newVM()
	l.relay(append(printed(t, third), "--name", "lab")...)
	want(t, call(t, h, "run_code_quick", map[string]any{"code": "where = 'third'\nwhere", "runtime": "lab"}),
		map[string]any{"success": true, "result": "'third'", "runtime": "lab", "warning": nil})
	listed(t, l, `(?m)^default +`+regexp.QuoteMeta(second.Ready.URL)+` +`+second.Ready.KeyID+` +yes *$`,
		`(?m)^lab +`+regexp.QuoteMeta(third.Ready.URL)+` +`+third.Ready.KeyID+` *$`)

	l.relay("unpair", "default")
	want(t, quick(t, h, "where"), map[string]any{"success": true, "result": "'third'", "runtime": "lab", "warning": nil})
	listed(t, l, `(?m)^lab +.* yes *$`)
	l.relay("unpair", "lab")
	a = quick(t, h, "where")
	if a.Error() != "not_configured" || !strings.Contains(a.Text, "not paired with a runtime yet") {
		t.Errorf("with all unpaired: %s", a.Text)
	}
}

// listed fails if relay runtimes does not print exactly one line for each pattern.
func listed(t *testing.T, l laptop, patterns ...string) {
	t.Helper()
	out := l.relay("runtimes")
	if n := strings.Count(out, "\n"); n != len(patterns)+1 {
		t.Errorf("relay runtimes printed %d lines:\n%s", n, out)
	}
	for _, p := range patterns {
		if !regexp.MustCompile(p).MatchString(out) {
			t.Errorf("relay runtimes: no line matches %s in\n%s", p, out)
		}
	}
}
