package main

import (
	"bytes"
	"strings"
	"testing"

	"colabrelay/relay/terminal"
)

// The scripts may run a relay that was built with a version.
func TestBootstrapOfABuildWithoutAVersionAsksForOne(t *testing.T) {
	var out, errs bytes.Buffer
	code := run(t.Context(), []string{commandName, "bootstrap", "--releases", "https://x.example"}, func(string) string { return "" },
		terminal.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	if code != 1 || out.Len() > 0 || !strings.Contains(errs.String(), "give a version with --version") {
		t.Errorf("exit code %d, printed %q and %q", code, &out, &errs)
	}
}
