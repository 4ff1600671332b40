package jupyter

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"colabrelay/shared/stacks"
)

// cutter passes TCP on to one port and can cut what passes.
type cutter struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
	done  sync.WaitGroup
}

// cutBefore puts a cutter before each channel of a kernel on TCP.
func cutBefore(t *testing.T, info ConnectionInfo) (ConnectionInfo, *cutter) {
	t.Helper()
	c := &cutter{}
	var listeners []net.Listener
	for _, port := range []*int{&info.ShellPort, &info.IOPubPort, &info.StdinPort, &info.ControlPort, &info.HBPort} {
		_, target := info.endpoint(*port)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners = append(listeners, l)
		*port = l.Addr().(*net.TCPAddr).Port
		c.done.Go(func() { c.serve(l, target) })
	}
	t.Cleanup(func() {
		for _, l := range listeners {
			l.Close()
		}
		c.cut()
		c.done.Wait()
	})
	return info, c
}

func (c *cutter) serve(l net.Listener, target string) {
	for {
		in, err := l.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", target)
		if err != nil {
			in.Close()
			continue
		}
		c.mu.Lock()
		c.conns = append(c.conns, in, out)
		c.mu.Unlock()
		for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
			c.done.Go(func() {
				_, _ = io.Copy(way[0], way[1])
				way[0].Close()
			})
		}
	}
}

func (c *cutter) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		conn.Close()
	}
	c.conns = nil
}

func TestReplyArrivesAcrossACut(t *testing.T) {
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		direct, err := NewTCP()
		if err != nil {
			t.Fatal(err)
		}
		startKernel(t, s, direct)
		info, line := cutBefore(t, direct)
		c := dial(t, info, Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		id, err := c.Send(ctx, Shell, MsgExecuteRequest, ExecuteRequest{Code: "import time\ntime.sleep(2)\nprint('after')"})
		if err != nil {
			t.Fatal(err)
		}
		cut := false
		printed := ""
		for replied := false; !replied; {
			m, err := c.Receive(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if m.ParentHeader.MsgID != id {
				continue
			}
			if m.Header.MsgType == MsgExecuteInput && !cut {
				line.cut()
				cut = true
			}
			if m.Header.MsgType == MsgStream {
				printed += string(m.Content)
			}
			replied = m.Header.MsgType == MsgExecuteReply
		}
		if !cut {
			t.Error("nothing was cut")
		}
		if o := execute(t, c, "1 + 1", nil); o.result != `"2"` {
			t.Errorf("after the cut: %+v (printed %q)", o, printed)
		}
	})
}

// handshakeAgainst does our side of the handshake with a peer that need not be a kernel.
func handshakeAgainst(t *testing.T, peer func(net.Conn)) error {
	t.Helper()
	near, far := net.Pipe()
	var done sync.WaitGroup
	done.Go(func() {
		peer(far)
		far.Close()
	})
	defer done.Wait()
	defer near.Close()
	_ = near.SetDeadline(time.Now().Add(5 * time.Second))
	return handshake(bufio.NewReader(near), near, socketDealer, []byte("id"))
}

func greetingOf(mechanism string, major byte) []byte {
	g := make([]byte, greetingSize)
	g[0], g[9], g[10] = 0xFF, 0x7F, major
	copy(g[12:], mechanism)
	return g
}

func TestHandshakeRefusesWhoIsNotAKernel(t *testing.T) {
	for name, c := range map[string]struct {
		says []byte
		want error
	}{
		"http":       {[]byte(strings.Repeat("HTTP/1.1 400 Bad Request\r\n", 4)), errGreeting},
		"curve":      {greetingOf("CURVE", 3), errGreeting},
		"zmtp 2":     {greetingOf("NULL", 1), errGreeting},
		"short":      {[]byte{0xFF, 0}, io.ErrUnexpectedEOF},
		"no READY":   {append(greetingOf("NULL", 3), 0, 1, 'x'), errGreeting},
		"ERROR":      {append(greetingOf("NULL", 3), append([]byte{flagCommand, 6}, "\x05ERROR"...)...), errGreeting},
		"huge READY": {append(greetingOf("NULL", 3), flagCommand|flagLong, 0, 0, 0, 1, 0, 0, 0, 0), errTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			err := handshakeAgainst(t, func(conn net.Conn) {
				greeting := make([]byte, greetingSize)
				_, _ = io.ReadFull(conn, greeting)
				_, _ = conn.Write(c.says)
				if c.want == io.ErrUnexpectedEOF {
					return // hangs up
				}
				_, _ = io.Copy(io.Discard, conn)
			})
			if !errors.Is(err, c.want) {
				t.Errorf("error = %v, want %v", err, c.want)
			}
		})
	}
}

func TestMutePeerDoesNotHoldTheDial(t *testing.T) {
	info, err := NewTCP()
	if err != nil {
		t.Fatal(err)
	}
	var done sync.WaitGroup
	t.Cleanup(done.Wait) // runs last
	for _, port := range []int{info.ShellPort, info.IOPubPort, info.StdinPort, info.ControlPort, info.HBPort} {
		_, address := info.endpoint(port)
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		done.Go(func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				done.Go(func() { _, _ = io.Copy(io.Discard, conn); conn.Close() })
			}
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := Dial(ctx, info, Options{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Dial = %v", err)
	}
}

func TestFrameBoundHoldsBeforeMemoryIsTaken(t *testing.T) {
	huge := binary.BigEndian.AppendUint64([]byte{flagLong}, 1<<40)
	if _, err := readMessage(bufio.NewReader(bytes.NewReader(huge)), 1<<20); !errors.Is(err, errTooLarge) {
		t.Errorf("one huge frame: %v", err)
	}
	many := encode([][]byte{make([]byte, 600), make([]byte, 600)})
	if _, err := readMessage(bufio.NewReader(bytes.NewReader(many)), 1000); !errors.Is(err, errTooLarge) {
		t.Errorf("frames that pass the bound together: %v", err)
	}
	torn := encode([][]byte{make([]byte, 600)})[:100]
	if _, err := readMessage(bufio.NewReader(bytes.NewReader(torn)), 1000); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a torn frame: %v", err)
	}
	endless := bytes.Repeat([]byte{flagMore, 0}, maxFrames+1)
	if _, err := readMessage(bufio.NewReader(bytes.NewReader(endless)), 1000); !errors.Is(err, errTooLarge) {
		t.Errorf("endless frames: %v", err)
	}
}

func TestForgedMessagesAreRefused(t *testing.T) {
	sign := signer{key: []byte("key")}
	frames, _, err := build(sign, "session", MsgStream, nil, map[string]string{"name": "stdout"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parse(sign, IOPub, append([][]byte{[]byte("topic")}, frames...)); err != nil {
		t.Fatalf("a right message: %v", err)
	}
	if _, err := parse(signer{key: []byte("other")}, IOPub, frames); !errors.Is(err, errSignature) {
		t.Errorf("another key: %v", err)
	}
	for i := 2; i < len(frames); i++ {
		forged := append([][]byte{}, frames...)
		forged[i] = append(bytes.Clone(forged[i]), ' ')
		if _, err := parse(sign, IOPub, forged); !errors.Is(err, errSignature) {
			t.Errorf("part %d changed: %v", i, err)
		}
	}
	if _, err := parse(sign, IOPub, frames[:4]); !errors.Is(err, errShort) {
		t.Errorf("a short message: %v", err)
	}
	if _, err := parse(sign, IOPub, frames[1:]); !errors.Is(err, errNoDelimiter) {
		t.Errorf("no delimiter: %v", err)
	}
}

func TestContentIsNotCopied(t *testing.T) {
	frames, _, err := build(signer{}, "s", MsgStream, nil, map[string]string{"text": strings.Repeat("x", 1<<20)})
	if err != nil {
		t.Fatal(err)
	}
	m, err := parse(signer{}, IOPub, frames)
	if err != nil {
		t.Fatal(err)
	}
	if &m.Content[0] != &frames[len(frames)-1][0] {
		t.Error("content was copied")
	}
}

func TestNewIPCRefusesADeepFolder(t *testing.T) {
	if _, err := NewIPC("/" + strings.Repeat("d", 110)); !errors.Is(err, ErrPathTooLong) {
		t.Errorf("error = %v", err)
	}
}

func TestTextCutsAtRunes(t *testing.T) {
	for _, want := range []string{"", "plain", "tab\t\"quoted\" \\ / \b\f\n\r", "grüße", "☃☃☃☃☃", "\U0001F600\U0001F600", "\u2028 \u00a0", "a\x00b"} {
		raw, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		for _, max := range []int{4, 5, 7, 1000} {
			var got strings.Builder
			err := Text(raw, max, func(piece []byte) {
				if len(piece) > max {
					t.Errorf("a piece of %d bytes, at most %d", len(piece), max)
				}
				got.Write(piece)
			})
			if err != nil || got.String() != want {
				t.Errorf("Text(%s, %d) = %q, %v", raw, max, got.String(), err)
			}
		}
	}
	for _, bad := range []string{``, `"`, `x`, `"\"`, `"\u12"`, `"a"b"`, `"\q"`} {
		if err := Text(json.RawMessage(bad), 8, func([]byte) {}); err == nil {
			t.Errorf("Text(%s) found nothing wrong", bad)
		}
	}
}

func FuzzText(f *testing.F) {
	for _, s := range []string{`"a"`, `"😀"`, `"\ud83d"`, "\"\xff\"", `"\\\""`} {
		f.Add([]byte(s), 16)
	}
	f.Fuzz(func(t *testing.T, raw []byte, max int) {
		max = 4 + (max&0xff+256)%256
		var got strings.Builder
		err := Text(raw, max, func(piece []byte) { got.Write(piece) })
		var want string
		if json.Unmarshal(raw, &want) == nil && len(raw) > 0 && raw[0] == '"' && raw[len(raw)-1] == '"' {
			if err != nil || got.String() != want {
				t.Errorf("Text(%q) = %q, %v; want %q", raw, got.String(), err, want)
			}
		}
	})
}

func FuzzReadMessage(f *testing.F) {
	f.Add(encode([][]byte{[]byte("a"), make([]byte, 300)}))
	f.Add([]byte{flagCommand, 1, 'x', 0, 0})
	f.Add([]byte{flagLong | flagMore, 0, 0, 0, 0, 0, 0, 0, 2, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		frames, err := readMessage(bufio.NewReader(bytes.NewReader(data)), 4<<10)
		if err != nil {
			return
		}
		again, err := readMessage(bufio.NewReader(bytes.NewReader(encode(frames))), 4<<10)
		if err != nil || len(again) != len(frames) {
			t.Errorf("%d frames came back as %d (%v)", len(frames), len(again), err)
		}
	})
}

func FuzzHandshake(f *testing.F) {
	f.Add(append(greetingOf("NULL", 3), readyCommand("ROUTER", nil)...))
	f.Add(greetingOf("NULL", 3))
	f.Fuzz(func(t *testing.T, data []byte) {
		_ = handshake(bufio.NewReader(bytes.NewReader(data)), io.Discard, socketSub, nil)
	})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(delimiter), []byte(`{"msg_id":"1","msg_type":"stream"}`), []byte(`{}`), []byte(`{"text":1}`))
	f.Add([]byte(delimiter), []byte(`{"msg_type":7}`), []byte(`null`), []byte(``))
	f.Fuzz(func(t *testing.T, delim, header, parent, content []byte) {
		m, err := parse(signer{}, IOPub, [][]byte{delim, {}, header, parent, {}, content})
		if err == nil && !bytes.Equal(m.Content, content) {
			t.Errorf("content %q became %q", content, m.Content)
		}
	})
}
