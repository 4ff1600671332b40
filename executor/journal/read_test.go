package journal

import (
	"testing"

	"colabrelay/shared/contract"
)

// A reader in parts is told of the end with the last of them, and not before.
func TestTheEndComesWithTheLastPart(t *testing.T) {
	j := openIn(t, t.TempDir(), Limits{})
	r := create(t, j, contract.Submit{RequestID: "r", Code: "1"})
	for _, text := range []string{"a", "b", "c"} {
		if err := r.Append(stdout(text)); err != nil {
			t.Fatal(err)
		}
	}
	r.Finish(contract.StatusSucceeded, "", 0)
	if got := fetch(t, j, r.ID); got != "abc" {
		t.Errorf("read %q to the end", got)
	}
}
