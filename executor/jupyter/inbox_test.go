package jupyter

import (
	"bytes"
	"io"
	"log/slog"
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

func sized(id, parent, msgType string, size int64) *Message {
	return &Message{Channel: IOPub, Header: Header{MsgID: id, MsgType: msgType}, ParentHeader: Header{MsgID: parent}, size: size}
}

func TestInboxCountsDropsForTheirParentWhereTheyHappened(t *testing.T) {
	q := newInbox(10<<10, &framePool{}, slog.New(slog.DiscardHandler))
	q.put(sized("1", "a", MsgStream, 9<<10))
	q.put(sized("2", "a", MsgStream, 9<<10))
	q.put(sized("3", "b", MsgStream, 7<<10))
	q.put(sized("4", "a", MsgStatus, 100))
	q.put(sized("5", "b", MsgStatus, 100))
	for _, want := range []struct {
		id      string
		dropped Dropped
	}{{"1", Dropped{}}, {"4", Dropped{1, 9 << 10}}, {"5", Dropped{1, 7 << 10}}} {
		m, err := q.receive(t.Context())
		if err != nil || m.Header.MsgID != want.id || m.Dropped != want.dropped {
			t.Errorf("received %+v, %v; want %+v", m, err, want)
		}
	}
}

// A consumer on a busy machine needs seconds for each message. What follows waits for it.
func TestBigMessageWaitsWhileItsConsumerGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newInbox(4*bigMessage, &framePool{}, slog.New(slog.DiscardHandler))
		go func() {
			for range 10 {
				q.put(sized("big", "a", MsgStream, bigMessage))
			}
			q.put(sized("huge", "a", MsgStream, 4*bigMessage)) // needs all the room
		}()
		for n := range 11 {
			m, err := q.receive(t.Context())
			if err != nil || m.Dropped != (Dropped{}) {
				t.Fatalf("message %d: %v, dropped before it: %+v", n, err, m.Dropped)
			}
			<-time.After(roomTimeout - time.Second)
		}
	})
}

func TestBigMessageWaitsForItsConsumerButNotForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newInbox(bigMessage, &framePool{}, slog.New(slog.DiscardHandler))
		began := time.Now()
		for range 3 {
			q.put(sized("big", "a", MsgStream, bigMessage))
		}
		if waited := time.Since(began); waited != roomTimeout {
			t.Errorf("waited %v for a consumer that never received, want %v once", waited, roomTimeout)
		}
		go func() {
			for range 2 { // the second call releases the first message
				if _, err := q.receive(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}()
		synctest.Wait()
		q.put(sized("next", "a", MsgStream, bigMessage))
		synctest.Wait()
		if q.received == nil || q.received.Header.MsgID != "next" || q.received.Dropped.Messages != 2 {
			t.Errorf("received = %+v, want the next one, with two dropped before it", q.received)
		}
	})
}

// frameRead reads a message with this bound, and the one that follows it.
func frameRead(t *testing.T, wire []byte, bound int64, key string) (first, next *Message) {
	t.Helper()
	r := newFrameReader(bytes.NewReader(append(wire, stream(t, key, "p", "next")...)), bound, &framePool{}, signer(key))
	var got []*Message
	for range 2 {
		raw, err := r.message()
		must(t, err)
		m, err := parseMessage(IOPub, raw, signer(key))
		must(t, err)
		got = append(got, m)
	}
	return got[0], got[1]
}

func wireOf(t testing.TB, key, msgType string, content any, buffers ...[]byte) []byte {
	t.Helper()
	frames, err := encodeMessage(Header{MsgID: "id", MsgType: msgType}, Header{MsgID: "p"}, content, signer(key))
	must(t, err)
	return appendMessage(nil, append(frames, buffers...)...)
}

func TestMessageOverTheBoundIsCutAndTheNextOneArrives(t *testing.T) {
	const bound = 2000
	long := strings.Repeat("é\n\x00", 1000)
	for name, c := range map[string]struct {
		wire []byte
		cut  bool
	}{
		"stream":      {wireOf(t, "key", MsgStream, map[string]string{"name": "stdout", "text": long}), true},
		"one buffer":  {wireOf(t, "key", MsgDisplayData, nil, make([]byte, bound)), false},
		"long header": {wireOf(t, "key", MsgStatus, map[string]string{"execution_state": "idle"}), false},
	} {
		t.Run(name, func(t *testing.T) {
			m, next := frameRead(t, c.wire, bound, "key")
			if m.ParentHeader.MsgID != "p" || (m.Cut > 0) != c.cut || next.Header.MsgID != "next" || next.Cut != 0 {
				t.Errorf("message = %+v, then %+v", m, next)
			}
		})
	}
}

func TestForgedMessageOverTheBoundIsRefused(t *testing.T) {
	wire := wireOf(t, "another", MsgStream, map[string]string{"name": "stdout", "text": strings.Repeat("x", 5000)})
	raw, err := newFrameReader(bytes.NewReader(wire), 1000, &framePool{}, signer("key")).message()
	must(t, err)
	if _, err := parseMessage(IOPub, raw, signer("key")); err == nil {
		t.Error("it was accepted")
	}
}

// On a busy machine the memory of others comes back slowly. A message waits for it as long as some
// does.
func TestAShareIsAwaitedWhileMemoryComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShare(t.Context(), 10)
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
		must(t, err)
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
	s.stalled.Store(true) // as if one had waited already
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
	if !s.free.TryAcquire(frame + queue) {
		t.Error("a part of the share is still taken")
	}
}
