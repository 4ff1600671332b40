// Package tier sorts the tests into two tiers: make test runs the short ones, which decide in
// five minutes, and make test-long runs all. It is for tests only. Start reading at Long.
package tier

import "testing"

// Long leaves a test to make test-long. It stands first in a test that takes seconds: one that
// floods, kills at random, waits for real deadlines, moves gigabytes, builds packages, or needs
// another user, sshd, a small disk or a second kernel stack.
func Long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("long: make test-long runs it")
	}
}
