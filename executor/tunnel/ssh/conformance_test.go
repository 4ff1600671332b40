package ssh

import (
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"colabrelay/executor/tunnel/tunneltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSSHConforms(t *testing.T) {
	tunneltest.Run(t, func(t *testing.T) tunneltest.Rig {
		s := startSSHD(t)
		return tunneltest.Rig{
			Tunnel: impatient(t, s.config()),
			Drop:   s.wire.Cut,
			Change: s.wire.Cut, // the server chooses another port
			Refuse: func() { s.authorize(s.writeKey(filepath.Join(s.home, "another"))) },
		}
	})
}

// impatient returns a tunnel with short delays that gives up soon.
func impatient(t *testing.T, c Config) *Tunnel {
	t.Helper()
	tun, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	tun.retry.First, tun.retry.GiveUp = tunneltest.QuickRetry, 10*tunneltest.QuickRetry
	return tun
}
