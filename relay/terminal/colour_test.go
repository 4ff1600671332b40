package terminal

import (
	"bytes"
	"testing"
)

func TestOnlyTerminalsGetColours(t *testing.T) {
	env := func(string) string { return "xterm" }
	if got := ColoursFor(&bytes.Buffer{}, env).Bad("x"); got != "x" {
		t.Errorf("%q", got)
	}
	if got := (Colours{on: true}).Bad("x") + (Colours{on: true}).Dim(""); got != "\x1b[31mx\x1b[0m" {
		t.Errorf("%q", got)
	}
}
