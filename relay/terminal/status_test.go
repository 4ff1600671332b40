package terminal

import (
	"bytes"
	"testing"
)

func TestAStatusIsWrittenOnlyToTerminals(t *testing.T) {
	var out bytes.Buffer
	s := Status{Out: &out}
	s.Show("1 of 2")
	s.Clear()
	if out.Len() > 0 {
		t.Errorf("%q", out.String())
	}
}
