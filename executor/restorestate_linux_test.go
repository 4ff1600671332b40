package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"colabrelay/shared/tier"
)

// An executor that finds the instance_id must find what has run, or a repeated request would run
// again. So the id returns to a deleted folder last: here something is in the outcomes' place.
func TestTheInstanceIDReturnsToADeletedStateDirOnlyWithTheOutcomes(t *testing.T) {
	tier.Long(t)
	p := start(t, withEnv(envSecret+"="+longSecret))
	before := p.ready()
	const code = "open('ran', 'a').write('x')"
	p.submit("past", code, 20)
	state, obstructed := filepath.Join(p.dir, ".colab-relay"), filepath.Join(p.dir, "obstructed")
	must(t, os.Mkdir(obstructed, 0o700))
	must(t, os.WriteFile(filepath.Join(obstructed, "executions"), nil, 0o600))
	must(t, unix.Renameat2(unix.AT_FDCWD, obstructed, unix.AT_FDCWD, state, unix.RENAME_EXCHANGE))
	p.until("the failure is logged", func() bool { return strings.Contains(p.errs.String(), "execution log's folder again") })
	must(t, p.cmd.Process.Kill())
	p.exit()
	must(t, os.Remove(p.readyFile()))
	must(t, os.Remove(filepath.Join(state, "executions")))
	again := start(t, in(p.dir), withEnv(envSecret+"="+longSecret))
	if again.ready().InstanceID != before.InstanceID {
		return // a relay takes it for another VM, and repeats nothing
	}
	again.submit("past", code, 20)
	if ran, err := os.ReadFile(filepath.Join(p.dir, "ran")); err != nil || len(ran) != 1 {
		t.Errorf("with the same instance_id, the repeated request ran %d times in all (%v)", len(ran), err)
	}
}
