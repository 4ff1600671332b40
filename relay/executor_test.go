package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"colabrelay/relay/cli"
	"colabrelay/relay/terminal"
)

func TestASecondMachineIsRefused(t *testing.T) {
	var out, errs strings.Builder
	args := []string{"colab-relay", "ssh", "a", "b"}
	if code := run(context.Background(), args, func(string) string { return "" }, terminal.Streams{In: strings.NewReader(""), Out: &out, Err: &errs}); code != cli.ExitUsage || !strings.Contains(errs.String(), `unexpected argument "b"`) {
		t.Errorf("exit code is %d:\n%s", code, errs.String())
	}
}

// Without an executor to copy, a login would be in vain: an address that nobody can reach shows that
// there was none.
func TestABuildThatIsNoReleaseSaysSoBeforeTheLogin(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	var out, errs strings.Builder
	args := []string{"colab-relay", "ssh", "127.0.0.1", "--", "-p", "1"}
	code := run(context.Background(), args, func(string) string { return "" }, terminal.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	if code == 0 || !strings.Contains(errs.String(), "which executor to copy to the machine") || !strings.Contains(errs.String(), "--executor") || strings.Contains(errs.String(), "could not connect") {
		t.Errorf("exit code is %d:\n%s", code, errs.String())
	}
}

// The scripts may run a relay that was built with a version.
func TestBootstrapOfABuildWithoutAVersionAsksForOne(t *testing.T) {
	var out, errs bytes.Buffer
	code := run(t.Context(), []string{cli.CommandName, "bootstrap", "--releases", "https://x.example"}, func(string) string { return "" },
		terminal.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	if code != 1 || out.Len() > 0 || !strings.Contains(errs.String(), "give a version with --version") {
		t.Errorf("exit code %d, printed %q and %q", code, &out, &errs)
	}
}
