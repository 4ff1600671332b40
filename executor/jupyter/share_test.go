package jupyter

import (
	"io"
	"net"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"colabrelay/shared/within"
)

// On a busy machine the memory of others comes back slowly. A message waits for it as long as some
// does.
func TestAShareIsAwaitedWhileMemoryComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShare(10, nil)
		s.take(10)
		waiting := make(chan bool)
		go func() { waiting <- s.take(10) }()
		for range 10 {
			<-time.After(shareTimeout - time.Second)
			s.give(1)
		}
		if !<-waiting {
			t.Error("it got no share")
		}
	})
}

// heldBytes is the memory that the process uses, without garbage: how much of that there
// is depends on the load of the machine.
func heldBytes() int64 {
	runtime.GC()
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}

// announced is the head of a frame of size bytes.
func announced(flags byte, size int) []byte {
	wire := appendFrame(nil, flags, make([]byte, 256))[:9]
	for i := range 8 {
		wire[1+i] = byte(size >> (56 - 8*i))
	}
	return wire
}

// Code in the kernel writes to all sockets at once, what nobody asked for and as much as it
// can: nobody receives the messages.
func TestFloodsOnAllSocketsTogetherTakeBoundedMemory(t *testing.T) {
	const frame, queue = 6 << 20, 4 << 20
	huge := func(msgType string) []byte {
		frames, err := encodeMessage(Header{MsgID: "id", MsgType: msgType}, Header{MsgID: "p"},
			map[string]string{"name": "stdout", "text": strings.Repeat("x", frame-1<<10)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return appendMessage(nil, frames...)
	}
	first, reply := huge(MsgDisplayData), huge(MsgExecuteReply)
	goOn := make(chan struct{})
	var written sync.WaitGroup
	written.Add(3)
	var once sync.Map
	p := newPeer(t, func(kind string, conn net.Conn) {
		shakeAs(kind, conn)
		if kind == "PUB" {
			_, _ = conn.Write(first)
			mute(kind, conn)
			return
		}
		<-goOn
		go mute(kind, conn)
		for range 3 {
			if _, err := conn.Write(reply); err != nil {
				return
			}
		}
		_, _ = conn.Write(announced(0, frame)) // of which nothing comes
		if _, again := once.LoadOrStore(conn, true); !again {
			written.Done()
		}
		_, _ = io.Copy(io.Discard, conn)
	})
	p.info.Key = ""
	before := heldBytes()
	c := p.open(t, Options{MaxFrame: frame, QueueBytes: queue})
	s := c.pool.share
	within.Until(t, "the first message is there", func() bool { return len(c.Arrived()) > 0 })
	s.mu.Lock()
	s.stalled = true // as if one had waited already
	s.mu.Unlock()
	close(goOn)
	done := make(chan struct{})
	go func() { written.Wait(); close(done) }()
	within.Receive(t, "all sockets to be read", done)
	const bound = frame + queue + 4*unshared
	if grown := heldBytes() - before; grown > bound {
		t.Errorf("it used %d MiB more, want at most %d", grown>>20, bound>>20)
	}
	for n := range 10 {
		m := receive(t, c)
		if (n == 0) != (m.Cut == 0) {
			t.Errorf("message %d: %d bytes are cut", n, m.Cut)
		}
		m.Release()
	}
	c.Close() // the frames that are announced may have got a share meanwhile
	within.Until(t, "no share is taken", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.used == 0
	})
}
