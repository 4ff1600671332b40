package jupyter

import (
	"io"
	"net"
	"strconv"
	"sync"
	"testing"

	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

// proxy forwards loopback ports to a kernel's, and can cut all connections.
type proxy struct {
	mu    sync.Mutex
	conns []net.Conn
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range p.conns {
		conn.Close()
	}
	p.conns = nil
}

func (p *proxy) forward(t *testing.T, target int) (port int) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	t.Cleanup(func() {
		listener.Close()
		p.cut()
		group.Wait()
	})
	group.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(target))
			if err != nil {
				near.Close()
				continue
			}
			p.mu.Lock()
			p.conns = append(p.conns, near, far)
			p.mu.Unlock()
			for _, pair := range [][2]net.Conn{{near, far}, {far, near}} {
				group.Go(func() {
					_, _ = io.Copy(pair[0], pair[1])
					pair[0].Close()
				})
			}
		}
	})
	return listener.Addr().(*net.TCPAddr).Port
}

func TestReplyArrivesAfterTheConnectionsWereCut(t *testing.T) {
	tier.Long(t)
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		info, err := NewTCP()
		if err != nil {
			t.Fatal(err)
		}
		startKernel(t, s, info)
		through, p := info, &proxy{}
		for _, port := range []*int{&through.ShellPort, &through.IOPubPort, &through.StdinPort, &through.ControlPort, &through.HBPort} {
			*port = p.forward(t, *port)
		}
		c, err := Dial(within.Context(t), through, Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		ran := false
		result := execute(t, c, "import time; time.sleep(3)\ninput()\n6 * 7", func(m *Message) {
			switch m.Header.MsgType {
			case MsgExecuteInput:
				ran = true
				p.cut()
			case MsgInputRequest: // arrives on the new connection of stdin
				if err := c.Reply(t.Context(), m, MsgInputReply, InputReply{Value: ""}); err != nil {
					t.Error(err)
				}
			}
		})
		if !ran || result != `42` && result != `"42"` {
			t.Errorf("ran: %v, the result is %q", ran, result)
		}
	})
}
