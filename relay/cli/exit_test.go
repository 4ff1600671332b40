package cli

import (
	"errors"
	"fmt"
	"testing"

	"colabrelay/relay/client"
	"colabrelay/relay/page"
	"colabrelay/relay/pairing"
	"colabrelay/relay/remoterun"
	"colabrelay/relay/runlist"
)

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("x"), 1},
		{pairing.ErrNotPaired, 1},
		{remoterun.ErrPrinted, 1},
		{fmt.Errorf("run x: %w", runlist.ErrStillRunning), 75},
		{fmt.Errorf("%w: %w", runlist.ErrStillRunning, &client.Error{Kind: client.KindTunnelOffline}), 75},
		{fmt.Errorf("%w: %q", runlist.ErrNoSuchRun, "x"), 64},
		{remoterun.ExitCode(7), 7},
		{Usagef("x"), 64},
		{Reported(errors.New("x"), 69), 69},
		{fmt.Errorf("getting: %w", &client.Error{Kind: client.KindTunnelOffline}), 69},
		{&client.Error{Kind: client.KindWrongSecret}, 1},
		{fmt.Errorf("x: %w", &page.NoTabError{}), 69},
	} {
		if got := ExitCode(c.err); got != c.want {
			t.Errorf("%v: exit code %d, want %d", c.err, got, c.want)
		}
	}
}
