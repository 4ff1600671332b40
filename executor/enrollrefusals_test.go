package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"colabrelay/executor/tunnel/ngroktest"
	"colabrelay/shared/contract"
	"colabrelay/shared/enrollment"
	"colabrelay/shared/tier"
)

// enrollLimitsOf sets enrollLimits of the program.
func enrollLimitsOf(reachable, used time.Duration) option {
	return withEnv(fmt.Sprintf("%s=%d %d", asEnrollLimits, reachable, used))
}

func withNgrok(edge *ngroktest.Edge) option {
	return withEnv(envNgrokServer+"="+edge.Addr, envNgrokCA+"="+edge.CAFile)
}

// refused checks the reason of an end.
func (e *enrolling) refused(says ...string) {
	e.t.Helper()
	reason := e.refusal()
	for _, part := range says {
		if !strings.Contains(reason, part) || strings.Contains(reason, "\n") {
			e.t.Errorf("the reason is %q, want one line with %q", reason, part)
		}
	}
}

func TestWithoutAGrantTheEnrollmentEnds(t *testing.T) {
	t.Parallel()
	e := startEnroll(t, enrollLimitsOf(300*time.Millisecond, time.Hour))
	e.refused("no grant arrived within 300ms: connect again")
	e.give("late")
	if left := e.left(); len(left) != 2 {
		t.Errorf("somebody read a late grant: %q", left)
	}
}

func TestTheReasonOfARefusedTunnelHasItsCodeAndNoSecret(t *testing.T) {
	t.Parallel()
	edge := ngroktest.Start(t)
	edge.RefuseToken("ERR_NGROK_105")
	e := startEnroll(t, withNgrok(edge))
	e.grant(enrollment.Grant{Tunnel: "ngrok", NgrokToken: ngrokToken})
	e.refused("ngrok refused the tunnel", "(ERR_NGROK_105)")
}

func TestGrantsThatThisMachineCanNotServeAreExplained(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		grant enrollment.Grant
		says  string
	}{
		"unknown tunnel": {enrollment.Grant{Tunnel: "wireguard"}, "--tunnel wireguard: must be ngrok"},
		"no program":     {enrollment.Grant{Tunnel: "cloudflared"}, "not on PATH"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := startEnroll(t, func(p *program) { p.cmd.Env = append(p.cmd.Env, "PATH="+t.TempDir()) })
			e.grant(c.grant)
			e.refused(c.says)
		})
	}
}

func TestAnExecutorThatTheRelayDoesNotUseEnds(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	e := startEnroll(t, enrollLimitsOf(time.Hour, 300*time.Millisecond))
	e.grant(enrollment.Grant{Tunnel: "none"})
	e.refused("no relay used the executor in time")
}

// TestTheLimitsOfAnEnrollment shows that an executor ends unless it is used.
func TestOnlyTheRelaysRequestsCountAsUse(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	e := startEnroll(t)
	a := e.paired(enrollment.Grant{Tunnel: "none"})
	used := func() bool { return slices.Contains(e.left(), "used") }
	for _, path := range []string{"/health", "/v1/kernel"} {
		if status, _ := get(a.URL + path); status == 0 || used() {
			t.Errorf("%s: status %d; it counts as use: %v", path, status, used())
		}
	}
	call[map[string]any](e.program, "GET", contract.PathKernel, nil)
	e.until("the use is recorded", used)
}

func TestAnotherExecutorOnTheMachineIsReportedBeforeAnythingIsSealed(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	first := start(t)
	first.ready()
	e := startEnroll(t, in(first.dir))
	e.refused("another executor already runs on this VM", `end it with "!pkill -x executor"`)
	if _, err := os.Stat(filepath.Join(e.folder, "key")); err == nil {
		t.Error("it showed a key")
	}
}

func TestATokenOnStdinIsBoundedInSizeAndTime(t *testing.T) {
	t.Parallel()
	e := startEnroll(t, func(p *program) {
		p.cmd.Args, p.cmd.Stdin = append(p.cmd.Args, "--ngrok-token-stdin"), strings.NewReader(strings.Repeat("t", maxTokenBytes+1))
	})
	e.refused("at most 1024 bytes")
	read, write, err := os.Pipe()
	must(t, err)
	defer write.Close()
	defer read.Close()
	e = startEnroll(t, enrollLimitsOf(300*time.Millisecond, time.Hour), func(p *program) {
		p.cmd.Args, p.cmd.Stdin = append(p.cmd.Args, "--ngrok-token-stdin"), read
	})
	e.refused("stdin was not closed")
}
