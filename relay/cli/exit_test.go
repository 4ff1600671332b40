package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/spf13/cobra"

	"colabrelay/relay/client"
	"colabrelay/relay/notebook"
	"colabrelay/relay/page"
	"colabrelay/relay/pairing"
	"colabrelay/relay/remoterun"
	"colabrelay/relay/terminal"
	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
)

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("x"), 1},
		{fs.ErrNotExist, 1},
		{context.Canceled, 1},
		{pairing.ErrNotPaired, 1},
		{remoterun.ErrPrinted, 1},
		{fmt.Errorf("run x: %w", remoterun.ErrStillRunning), 75},
		{fmt.Errorf("%w: %w", remoterun.ErrStillRunning, &client.Error{Kind: client.KindTunnelOffline}), 75},
		{fmt.Errorf("%w: %q", remoterun.ErrNoSuchRun, "x"), 64},
		{fmt.Errorf("%w: x", &notebook.NoCellError{Handle: "x"}), 64},
		{&leftNotebook{&client.Error{Kind: client.KindTunnelOffline}}, 75},
		{remoterun.ExitCode(0), 0},
		{remoterun.ExitCode(7), 7},
		{remoterun.ExitCode(64), 64},
		{fmt.Errorf("listing: %w", &contract.Error{Code: contract.CodeNotFound}), 1},
		{Usagef("x"), 64},
		{fmt.Errorf("%w: cut", auth.ErrPairing), 64},
		{pairing.ErrBadName, 64},
		{Reported(errors.New("x"), 69), 69},
		{fmt.Errorf("run: %w", Usagef("x")), 64},
		{fmt.Errorf("getting: %w", &client.Error{Kind: client.KindTunnelOffline}), 69},
		{&client.Error{Kind: client.KindWrongSecret}, 1},
		{fmt.Errorf("x: %w", &page.NoTabError{}), 69},
	} {
		if got := ExitCode(c.err); got != c.want {
			t.Errorf("%v: exit code %d, want %d", c.err, got, c.want)
		}
	}
}

func TestEachKindOfConnectionErrorHasAnExitCode(t *testing.T) {
	for _, kind := range client.Kinds {
		if _, decided := unreachable[kind]; !decided {
			t.Errorf("%q is not in the table", kind)
		}
	}
	if len(unreachable) != len(client.Kinds) {
		t.Errorf("%d kinds in the table, want %d", len(unreachable), len(client.Kinds))
	}
}

func TestASignalIsNotReportedAsAVMThatDoesNotAnswer(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	unanswered := &client.Error{Kind: client.KindTimeout}
	if err := Interrupted(ctx, unanswered); err != unanswered {
		t.Error(err)
	}
	cancel()
	left := fmt.Errorf("%w: %w", remoterun.ErrStillRunning, unanswered)
	for _, c := range []struct{ err, want error }{
		{nil, nil}, {unanswered, terminal.ErrInterrupted}, {context.Canceled, terminal.ErrInterrupted},
		{remoterun.ErrPrinted, remoterun.ErrPrinted}, {left, left},
	} {
		if err := Interrupted(ctx, c.err); err != c.want {
			t.Errorf("%v became %v", c.err, err)
		}
	}
}

func TestErrorsArePrintedWithTheirNextStep(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{remoterun.ErrPrinted, ""},
		{remoterun.ExitCode(3), ""},
		{errors.New("no\x1b[31m disk"), "relay2: no disk\n"},
		{Usagef("x"), "relay2: x\n  next step: run `relay2 get --help`\n"},
		{&client.Error{Kind: client.KindTimeout, Message: "m", Hint: "wait"}, "relay2: timeout: m\n  next step: wait\n"},
	} {
		var out bytes.Buffer
		root, get := &cobra.Command{Use: "relay2"}, &cobra.Command{Use: "get"}
		root.AddCommand(get)
		Finish(c.err, get, terminal.Streams{Err: &out})
		if out.String() != c.want {
			t.Errorf("%q, want %q", out.String(), c.want)
		}
	}
}
