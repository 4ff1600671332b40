package main

import (
	"strings"
	"syscall"
	"testing"

	"colabrelay/shared/tier"
)

// Without a word about it, a person looks for the fault of a pairing that worked a minute ago.
func TestARestartWithoutASecretSaysThatTheEarlierPairingIsVoid(t *testing.T) {
	tier.Long(t)
	const said = "an earlier pairing with this executor no longer works"
	dir := t.TempDir()
	shown := func(options ...option) string {
		p := start(t, append(options, in(dir))...)
		p.ready()
		p.until("the kernel is up", func() bool { return strings.Contains(p.out.String(), "  kernel ") })
		p.signal(syscall.SIGTERM)
		p.exit()
		return p.out.String()
	}
	if out := shown(); strings.Contains(out, said) || !strings.Contains(out, "paste this line") {
		t.Errorf("the first start shows:\n%s", out)
	}
	out := shown()
	note, line := strings.Index(out, said), strings.Index(out, "paste this line")
	if note < 0 || line < note || !strings.Contains(out, envSecretFile) {
		t.Errorf("the second start shows:\n%s", out)
	}
	if out := shown(withEnv(envSecret + "=" + longSecret)); strings.Contains(out, said) {
		t.Errorf("a start with a given secret shows:\n%s", out)
	}
}
