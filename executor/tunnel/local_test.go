package tunnel_test

import (
	"net"
	"strings"
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

func TestLocalSaysWhyItCanNotListen(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	local := tunnel.NewLocal(l.Addr().String())
	err = local.Run(t.Context(), func(string) { t.Error("ready") }, nil)
	_, checked := local.Check(t.Context())
	for _, err := range []error{err, checked} {
		if err == nil || !strings.Contains(err.Error(), l.Addr().String()) || !strings.Contains(err.Error(), "--listen") {
			t.Errorf("got %v", err)
		}
	}
}

func TestLocalOnAllAddressesHasAURLToDial(t *testing.T) {
	url := tunneltest.Start(t, tunnel.NewLocal(":0"), tunneltest.Hello).URL()
	if _, body, err := tunneltest.Visit(url); err != nil || body != "hello" {
		t.Errorf("%s gave %q, %v", url, body, err)
	}
}
