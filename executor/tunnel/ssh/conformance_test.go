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
		s := startServer(t)
		return tunneltest.Rig{
			Tunnel: impatient(t, s.config()),
			Drop:   s.cut,
			Change: s.cut, // the server chooses another port
			Refuse: func() { s.authorize(s.newKey(filepath.Join(s.home, "another")).PublicKey()) },
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
