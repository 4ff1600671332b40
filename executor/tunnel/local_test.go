package tunnel_test

import (
	"testing"

	"go.uber.org/goleak"

	"colabrelay/executor/tunnel"
	"colabrelay/executor/tunnel/tunneltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLocalConforms(t *testing.T) {
	tunneltest.Run(t, func(*testing.T) tunneltest.Rig {
		return tunneltest.Rig{Tunnel: tunnel.NewLocal("127.0.0.1:0"), Local: true}
	})
}

func TestLocalOnAllAddressesHasAURLToDial(t *testing.T) {
	url := tunneltest.Start(t, tunnel.NewLocal(":0"), tunneltest.Hello).URL()
	if _, body, err := tunneltest.Visit(url); err != nil || body != "hello" {
		t.Errorf("%s gave %q, %v", url, body, err)
	}
}
