package e2e

import (
	"net"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/tier"
)

func TestACallEndsSoonWhereNothingListens(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free := l.Addr().String()
	l.Close()
	h, err := harness.StartHost(within(t), harness.HostConfig{Binary: binaries.Relay, Dir: t.TempDir(), Env: []string{
		"RELAY_HOLD=45s", "COLAB_URL=http://" + free, "COLAB_SECRET=an unused secret of 32 bytes or more",
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	began := time.Now()
	a := quick(t, h, "1")
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("run_code_quick answered after %v", took)
	}
	for _, part := range []string{"nothing listens at " + free, "attempts and ", "The code was not run.", "start the executor again"} {
		if a.Error() != "unreachable" || !strings.Contains(a.Text, part) {
			t.Errorf("%q is missing in %s: %s", part, a.Error(), a.Text)
		}
	}
}
