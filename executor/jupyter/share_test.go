package jupyter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

func TestTheShareOfAllSocketsAtItsBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := newShare(10, nil)
		for _, c := range []struct {
			n      int64
			taken  bool
			waited time.Duration // until now
		}{
			{11, false, 0}, {10, true, 0}, {1, false, shareTimeout}, {1, false, shareTimeout}, // the second one does not wait
		} {
			if taken := s.take(c.n); taken != c.taken || time.Since(began) != c.waited {
				t.Errorf("%d of 10: %t after %v, want %t after %v", c.n, taken, time.Since(began), c.taken, c.waited)
			}
		}
		s.give(10)
		if !s.take(9) || !s.take(1) {
			t.Error("what was given back can't be taken")
		}
		waiting := make(chan bool)
		go func() { waiting <- s.take(4) }()
		synctest.Wait()
		s.give(9)
		if !<-waiting || s.used != 5 {
			t.Errorf("who waited got nothing, %d are in use", s.used)
		}
	})
}

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

func TestNobodyWaitsForAShareAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		s := newShare(10, ctx.Done())
		s.take(10)
		waiting := make(chan bool)
		go func() { waiting <- s.take(1) }()
		synctest.Wait()
		end()
		if <-waiting {
			t.Error("it got a share")
		}
	})
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
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		t.Error("a socket is blocked")
	}
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

// A connection that ends inside a message gives back what the message took.
func TestATornMessageGivesItsShareBack(t *testing.T) {
	pool := &framePool{share: newShare(4<<20, nil)}
	wire := append(announced(flagMore, 3<<20), "and no more"...)
	r := newFrameReader(bytes.NewReader(wire), 4<<20, pool, nil)
	err := (&socket{pool: pool}).read(r)
	if !errors.Is(err, io.ErrUnexpectedEOF) || pool.share.used != 0 {
		t.Errorf("%v, %d bytes count as used", err, pool.share.used)
	}
}

// A reply that arrives while its Request gives up gives back what it took.
func TestAReplyThatNobodyAwaitsAnyMoreIsReleased(t *testing.T) {
	pool := &framePool{share: newShare(10, nil)}
	pool.take(5)
	waiting := &calls{waiting: map[string]chan *Message{}}
	reply := waiting.add("p")
	if !waiting.handle(&Message{
		Channel: Shell, Header: Header{MsgType: MsgExecuteReply}, ParentHeader: Header{MsgID: "p"}, frames: [][]byte{{}}, taken: 5, pool: pool,
	}) {
		t.Fatal("nobody waits")
	}
	waiting.remove("p", reply)
	if pool.share.used != 0 {
		t.Errorf("%d bytes count as used", pool.share.used)
	}
}

// Small messages need more memory than their bytes: many frames, long headers, many parents.
func TestThousandsOfSmallMessagesTakeBoundedMemory(t *testing.T) {
	tier.Long(t)
	const queue = 1 << 20
	long := strings.Repeat("p", maxHeader/2)
	for name, wireOf := range map[string]func(n int) []byte{
		"many frames": func(int) []byte {
			frames := streamFrames(t, "", "p", "x")
			return appendMessage(nil, append(frames, make([][]byte, 4000)...)...)
		},
		"many identities": func(int) []byte {
			return appendMessage(nil, append(make([][]byte, 4000), streamFrames(t, "", "p", "x")...)...)
		},
		"long headers": func(n int) []byte { return stream(t, "", fmt.Sprint(n, long), "x") },
		"nothing":      func(int) []byte { return stream(t, "", "p", "x") },
	} {
		t.Run(name, func(t *testing.T) {
			q := newInbox(queue, &framePool{}, slog.New(slog.DiscardHandler))
			before := heldBytes()
			for n := range 2000 {
				raw, err := newFrameReader(bytes.NewReader(wireOf(n)), 1<<20, q.pool, nil).message()
				if err != nil {
					t.Fatal(err)
				}
				if m, err := parseMessage(IOPub, raw, nil); err == nil {
					q.put(m)
				}
			}
			if grown := heldBytes() - before; grown > 2*queue {
				t.Errorf("it used %d KiB more", grown>>10)
			}
			runtime.KeepAlive(q)
		})
	}
}

func TestFramesAtTheirBoundAreHeld(t *testing.T) {
	for _, count := range []int{maxFrames, maxFrames + 1} {
		wire := appendMessage(nil, make([][]byte, count)...)
		m, err := newFrameReader(bytes.NewReader(wire), 1<<20, &framePool{}, nil).message()
		if err != nil || len(m.frames) != maxFrames || (m.excess != nil) != (count > maxFrames) {
			t.Errorf("of %d frames, %d are held: %v", count, len(m.frames), err)
		}
	}
}

// Commands between messages are skipped, however many there are.
func TestThousandsOfCommandsTakeNoMemory(t *testing.T) {
	tier.Long(t)
	command := appendFrame(nil, flagCommand, make([]byte, maxCommand))
	wire := append(bytes.Repeat(command, 2000), stream(t, "", "p", "x")...)
	r := newFrameReader(bytes.NewReader(wire), 1<<20, &framePool{}, nil)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	m, err := r.message()
	runtime.ReadMemStats(&after)
	if taken := after.TotalAlloc - before.TotalAlloc; err != nil || len(m.frames) == 0 || taken > 1<<20 {
		t.Errorf("%v, %d frames, %d KiB were allocated", err, len(m.frames), taken>>10)
	}
	for size, want := range map[int]error{maxCommand: io.EOF, maxCommand + 1: errFrameTooLarge} {
		r := newFrameReader(bytes.NewReader(appendFrame(nil, flagCommand, make([]byte, size))), 1<<20, &framePool{}, nil)
		if _, err := r.message(); !errors.Is(err, want) {
			t.Errorf("a command of %d bytes: %v, want %v", size, err, want)
		}
	}
}

// Replies have a bound of their own, because decoding copies them.
func TestAReplyIsCutPastItsBound(t *testing.T) {
	tier.Long(t)
	content := len(wireOf(t, "", MsgExecuteReply, map[string]string{"x": ""}))
	for _, over := range []bool{false, true} {
		size := maxReply - content
		if over {
			size = maxReply
		}
		wire := wireOf(t, "", MsgExecuteReply, map[string]string{"x": strings.Repeat("x", size)})
		p := newPeer(t, func(kind string, conn net.Conn) {
			shakeAs(kind, conn)
			if kind == "ROUTER" {
				_, _ = conn.Write(wire)
			}
			mute(kind, conn)
		})
		p.info.Key = ""
		m := receive(t, p.open(t, Options{}))
		if (m.Cut > 0) != over {
			t.Errorf("over the bound: %t, %d bytes are cut", over, m.Cut)
		}
	}
}

func TestDropsOfOddParentsAreNotRemembered(t *testing.T) {
	q := newInbox(1, &framePool{}, slog.New(slog.DiscardHandler))
	q.put(sized("1", "a", MsgStream, 10))
	for n := range 3 * maxDropParents {
		q.put(sized("odd", fmt.Sprintf("%0*d", maxDropParent+1, n), MsgStream, 10))
	}
	if len(q.dropped) != 0 {
		t.Errorf("%d parents with an id past the bound are remembered", len(q.dropped))
	}
	for n := range 3 * maxDropParents {
		q.put(sized("odd", fmt.Sprintf("%0*d", maxDropParent, n), MsgStream, 10))
	}
	if len(q.dropped) != maxDropParents {
		t.Errorf("%d parents are remembered, want %d", len(q.dropped), maxDropParents)
	}
}
