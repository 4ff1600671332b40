package cli

import (
	"bytes"
	"encoding/json"
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

func TestJSONContainsNoInvisibleCharacters(t *testing.T) {
	want := "a\x1b[31m\u009b2J \u202egpj.\U000e0041 日本 <é>\n\t\x7f"
	var out bytes.Buffer
	if err := PrintJSON(&out, []string{want}); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); text != "[\n  \"a\\u001b[31m\\u009b2J \\u202egpj.\\udb40\\udc41 日本 <é>\\n\\t\\u007f\"\n]\n" {
		t.Errorf("%q", text)
	}
	var got []string
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || got[0] != want {
		t.Errorf("%q, %v", got, err)
	}
}
