package cloudflared

import (
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"colabrelay/executor/tunnel/tunneltest"
	"colabrelay/shared/tier"
)

// Under the name cloudflared, this test program is the stand-in for that program.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == programName {
		os.Exit(standIn(os.Args, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

func TestCloudflaredConforms(t *testing.T) {
	tier.Long(t)
	tunneltest.Run(t, func(t *testing.T) tunneltest.Rig {
		f := installStandIn(t)
		return tunneltest.Rig{
			Tunnel: impatient(Config{}),
			Drop:   f.kill,
			Change: f.kill,
			Refuse: func() { f.behave("limited") },
		}
	})
}

// impatient returns a tunnel with short delays that gives up soon.
func impatient(c Config) *Tunnel {
	t := New(c)
	t.retry.First, t.retry.GiveUp = tunneltest.QuickRetry, 10*tunneltest.QuickRetry
	return t
}
