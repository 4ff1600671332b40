package ssh

import (
	"io"
	"testing"

	"golang.org/x/crypto/ssh"

	"colabrelay/shared/tier"
)

// visitor is a connection that a server forwards. Its visitor sends nothing.
type visitor struct {
	ssh.Channel
	gone     chan struct{}
	requests chan *ssh.Request
	rejected *ssh.RejectionReason
}

func newVisitor() *visitor {
	return &visitor{gone: make(chan struct{}), requests: make(chan *ssh.Request)}
}

func (v *visitor) Accept() (ssh.Channel, <-chan *ssh.Request, error) { return v, v.requests, nil }
func (v *visitor) ChannelType() string                               { return "forwarded-tcpip" }
func (v *visitor) Reject(reason ssh.RejectionReason, _ string) error {
	v.rejected = &reason
	return nil
}

func (v *visitor) ExtraData() []byte {
	return ssh.Marshal(struct {
		Bind   string
		Port   uint32
		Origin string
		From   uint32
	}{"localhost", 80, "198.51.100.1", 5000})
}

func (v *visitor) Read([]byte) (int, error) {
	<-v.gone
	return 0, io.EOF
}

func (v *visitor) Close() error {
	close(v.requests)
	return nil
}

// Idle strangers take no place that an owner needs before the HTTP server, which has limits of
// its own, had to choose.
func TestThousandsOfIdleVisitorsLeaveRoom(t *testing.T) {
	tier.Long(t)
	const keptByAPI = 1024 + 1024
	channels := make(chan ssh.NewChannel)
	f := newForwarded(channels)
	open := func() *visitor {
		v := newVisitor()
		channels <- v
		return v
	}
	var idle []*visitor
	for len(idle) < maxConnections {
		v := open()
		conn, err := f.Accept()
		if err != nil || v.rejected != nil {
			t.Fatalf("visitor %d: %v, rejected %v", len(idle), err, v.rejected)
		}
		defer conn.Close()
		idle = append(idle, v)
	}
	if len(idle) <= keptByAPI {
		t.Errorf("a link carries %d connections, fewer than the HTTP server keeps", len(idle))
	}
	one := open()
	close(channels)
	<-f.gone // so open has returned
	if one.rejected == nil || *one.rejected != ssh.ResourceShortage {
		t.Errorf("one past the bound: rejected %v", one.rejected)
	}
	for _, v := range idle {
		close(v.gone)
	}
	f.work.Wait()
}
