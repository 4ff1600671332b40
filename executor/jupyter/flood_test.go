package jupyter

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

// flood prints lines of 100 bytes at full speed and returns the bytes of text that arrived.
func flood(t testing.TB, c *Client, lines int, each func()) (text int64, dropped Dropped) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	id, err := c.Send(ctx, Shell, MsgExecuteRequest, ExecuteRequest{
		Code: fmt.Sprintf("line = 'x' * 99\nfor _ in range(%d): print(line)", lines)})
	if err != nil {
		t.Fatal(err)
	}
	for idle := false; !idle; {
		m, err := c.Receive(ctx)
		if err != nil {
			t.Fatal(err)
		}
		each()
		dropped.Messages += m.Dropped.Messages
		dropped.Bytes += m.Dropped.Bytes
		switch {
		case m.ParentHeader.MsgID != id:
		case m.Header.MsgType == MsgStream:
			var s Stream
			if err := m.Decode(&s); err != nil {
				t.Fatal(err)
			}
			if err := Text(s.Text, 16<<10, func(piece []byte) { text += int64(len(piece)) }); err != nil {
				t.Fatal(err)
			}
		case m.Header.MsgType == MsgStatus:
			var s Status
			decode(t, m, &s)
			idle = s.ExecutionState == "idle"
		}
		m.Release()
	}
	return text, dropped
}

// heldBytes is the memory that the process uses, without garbage: how much of that there
// is depends on the load of the machine.
func heldBytes() int64 {
	runtime.GC()
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}

func TestFloodArrivesCompletelyInBoundedMemory(t *testing.T) {
	tier.Long(t)
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		c := ipcKernel(t, s, Options{})
		before, peak := heldBytes(), int64(0)
		lines := 300_000
		text, dropped := flood(t, c, lines, func() { peak = max(peak, heldBytes()) })
		if text != int64(100*lines) || dropped != (Dropped{}) {
			t.Errorf("%d bytes arrived, dropped %+v", text, dropped)
		}
		if grown := peak - before; grown > 64<<20 {
			t.Errorf("it used %d MiB more", grown>>20)
		}
	})
}

func rss(t testing.TB) int64 {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kb << 10
}

func BenchmarkFlood(b *testing.B) {
	c := ipcKernel(b, stacks.Old(b), Options{})
	before := rss(b)
	b.SetBytes(100_000_000)
	for b.Loop() {
		if text, dropped := flood(b, c, 1_000_000, func() {}); text != 100_000_000 {
			b.Fatalf("%d bytes arrived, dropped %+v", text, dropped)
		}
	}
	b.ReportMetric(float64(rss(b)-before)/(1<<20), "RSS-MiB-grown")
}

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
		c := dial(t, through, Options{})
		ran := false
		o := execute(t, c, "import time; time.sleep(3)\ninput()\n6 * 7", func(m *Message) {
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
		if !ran || o.result != `42` && o.result != `"42"` {
			t.Errorf("outcome = %+v", o)
		}
	})
}
