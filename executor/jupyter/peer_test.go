package jupyter

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"go.uber.org/goleak"

	"colabrelay/shared/within"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shortDir is a folder whose path leaves room for sockets; t.TempDir's may not.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "jup-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// peer pretends to be a kernel, to do what a real one can't be made to do.
type peer struct {
	info ConnectionInfo
	log  *logged
}

// newPeer calls serve with every connection to the five sockets.
func newPeer(t *testing.T, serve func(kind string, conn net.Conn)) *peer {
	t.Helper()
	info, err := NewIPC(shortDir(t))
	must(t, err)
	var group sync.WaitGroup
	t.Cleanup(group.Wait) // after the listeners are closed
	for _, socket := range []struct {
		port int
		kind string
	}{{1, "ROUTER"}, {2, "PUB"}, {3, "ROUTER"}, {4, "ROUTER"}, {5, "REP"}} {
		_, path := info.address(socket.port)
		listener, err := net.Listen("unix", filepath.Clean(path))
		must(t, err)
		t.Cleanup(func() { listener.Close() })
		group.Go(func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				group.Go(func() {
					defer conn.Close()
					serve(socket.kind, conn)
				})
			}
		})
	}
	return &peer{info: info, log: &logged{}}
}

// open starts a Client without waiting for an answer.
func (p *peer) open(t *testing.T, o Options) *Client {
	t.Helper()
	o.Log = slog.New(slog.NewTextHandler(p.log, nil))
	c := newClient(p.info, o.withDefaults())
	t.Cleanup(func() { c.Close() })
	return c
}

// logged is a log that can be read while it is written.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// shakeAs performs the peer's half of a correct handshake.
func shakeAs(kind string, conn net.Conn) {
	_, _ = conn.Write(appendFrame(greeting(), flagCommand, readyCommand(socketType(kind), "")))
}

// mute sends nothing and reads until the client hangs up.
func mute(_ string, conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

// broadcast performs correct handshakes and sends these bytes on iopub.
func broadcast(wire []byte) func(string, net.Conn) {
	return func(kind string, conn net.Conn) {
		shakeAs(kind, conn)
		if kind == "PUB" {
			_, _ = conn.Write(wire)
		}
		mute(kind, conn)
	}
}

// stream is the wire form of a stream message, signed with key.
func stream(t testing.TB, key, parent, text string) []byte {
	t.Helper()
	return appendMessage(nil, streamFrames(t, key, parent, text)...)
}

func streamFrames(t testing.TB, key, parent, text string) [][]byte {
	t.Helper()
	frames, err := encodeMessage(Header{MsgID: text, MsgType: MsgStream}, Header{MsgID: parent},
		map[string]string{"name": "stdout", "text": text}, signer(key))
	must(t, err)
	return frames
}

func receive(t *testing.T, c *Client) *Message {
	t.Helper()
	m, err := c.Receive(within.Context(t))
	must(t, err)
	return m
}

func TestForgedMessageIsDroppedAndLoggedWithoutContent(t *testing.T) {
	var info ConnectionInfo
	ready := make(chan struct{})
	p := newPeer(t, func(kind string, conn net.Conn) {
		<-ready
		wire := stream(t, "another key", "p", "forged-secret")
		broadcast(append(wire, stream(t, info.Key, "p", "true")...))(kind, conn)
	})
	info = p.info
	close(ready)
	m := receive(t, p.open(t, Options{}))
	if m.Header.MsgID != "true" {
		t.Errorf("received %q", m.Header.MsgID)
	}
	if log := p.log.String(); !strings.Contains(log, "signature is wrong") || strings.Contains(log, "forged-secret") {
		t.Errorf("log = %s", log)
	}
}

func TestOddHeadersAndUnknownTypesAreTolerated(t *testing.T) {
	frames := [][]byte{[]byte("topic"), delimiter, nil,
		[]byte(`{"msg_id":"1","msg_type":"iopub_welcome","date":12,"username":null,"new_field":{}}`),
		[]byte(`{}`), []byte(`{}`), []byte(`{"x":1}`), []byte("buffer")}
	m, err := parseMessage(IOPub, wireMessage{frames: frames}, nil)
	must(t, err)
	if m.Header.MsgType != "iopub_welcome" || m.ParentHeader != (Header{}) {
		t.Errorf("message = %+v", m)
	}
	if &m.Content[0] != &frames[6][0] {
		t.Error("content was copied")
	}
}

func TestConnectionInfoPrintsNoKey(t *testing.T) {
	info, err := NewIPC(shortDir(t))
	must(t, err)
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "info", info)
	if strings.Contains(log.String(), info.Key) || strings.Contains(info.String()+info.GoString(), info.Key) {
		t.Error("the key is printed")
	}
	if _, err := NewIPC("/" + strings.Repeat("d", 104)); !errors.Is(err, ErrPathTooLong) {
		t.Errorf("err = %v", err)
	}
	if _, err := NewIPC("/" + strings.Repeat("d", 102)); err != nil {
		t.Errorf("a path of 107 bytes: %v", err)
	}
}

func FuzzHandshake(f *testing.F) {
	f.Add(appendFrame(greeting(), flagCommand, readyCommand("ROUTER", "id")))
	f.Add(greeting())
	f.Fuzz(func(t *testing.T, wire []byte) {
		r := newFrameReader(bytes.NewReader(wire), 1<<16, &framePool{}, nil)
		if readHandshake(r, dealer) == nil && !bytes.Equal(wire[12:16], []byte("NULL")) {
			t.Error("it accepted another mechanism")
		}
	})
}

// FuzzFrames checks that frames do not change when they are written and read again.
func FuzzFrames(f *testing.F) {
	f.Add(appendMessage(nil, []byte("a"), bytes.Repeat([]byte("b"), 300), nil))
	f.Add([]byte{flagLong, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{flagCommand, 1, 'x', 0, 0})
	f.Fuzz(func(t *testing.T, wire []byte) {
		const bound = 1 << 16
		first, err := newFrameReader(bytes.NewReader(wire), bound, &framePool{}, nil).message()
		if err != nil || first.excess != nil {
			return
		}
		total := 0
		for _, frame := range first.frames {
			total += len(frame)
		}
		if total > bound {
			t.Fatalf("it read %d bytes", total)
		}
		second, err := newFrameReader(bytes.NewReader(appendMessage(nil, first.frames...)), bound, &framePool{}, nil).message()
		if err != nil || !bytes.Equal(bytes.Join(first.frames, []byte("|")), bytes.Join(second.frames, []byte("|"))) {
			t.Errorf("read %q, then %q, %v", first.frames, second.frames, err)
		}
	})
}

func FuzzParseMessage(f *testing.F) {
	f.Add(appendMessage(nil, streamFrames(f, "", "p", "x")...), "")
	f.Add(appendMessage(nil, streamFrames(f, "key", "p", "x")...), "key")
	f.Add(appendMessage(nil, streamFrames(f, "key", "p", strings.Repeat("é\n", 200))...), "key")
	f.Fuzz(func(t *testing.T, wire []byte, key string) {
		frames, err := newFrameReader(bytes.NewReader(wire), 1<<8, &framePool{}, signer(key)).message()
		if err != nil {
			return
		}
		if m, err := parseMessage(IOPub, frames, signer(key)); err == nil {
			_, _ = m.Decode(&Stream{}), m.Decode(&DisplayData{})
			m.Parent()
		}
	})
}

// FuzzText checks that Text agrees with encoding/json and divides between characters.
func FuzzText(f *testing.F) {
	for _, seed := range []string{`"a\n\"\\\/é\u00e9\ud83d\ude00"`, `"\ud83d"`, `"\ude00\ud83d\u0041"`, "\"\xff\xe2\x82\"", `"`, `"\u12"`, `""`} {
		f.Add([]byte(seed), 4)
	}
	f.Fuzz(func(t *testing.T, raw []byte, size int) {
		var want string
		unmarshalled := json.Unmarshal(raw, &want)
		trimmed := bytes.Equal(raw, bytes.Trim(raw, " \t\r\n")) && !bytes.Equal(raw, []byte("null"))
		size &= 0xff
		var got []byte
		err := Text(raw, size, func(chunk []byte) {
			if len(chunk) == 0 || len(chunk) > max(size, 4) || !utf8.Valid(chunk) {
				t.Errorf("piece %q, at most %d", chunk, size)
			}
			got = append(got, chunk...)
		})
		if trimmed && (err == nil) != (unmarshalled == nil) {
			t.Fatalf("Text: %v, encoding/json: %v", err, unmarshalled)
		}
		if err == nil && string(got) != want {
			t.Errorf("Text %q, encoding/json %q", got, want)
		}
	})
}

// FuzzFields checks that fields finds the members that encoding/json finds.
func FuzzFields(f *testing.F) {
	for _, seed := range []string{`{}`, `{"a":"}\\\"","b":[1,{"c":null}],"d":-1e5 , "e" : true}`, `{"a":1,}`, `{"a"}`, `{"\u0061":""}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got := map[string]json.RawMessage{}
		err := fields(raw, func(key string, value json.RawMessage) { got[key] = value })
		var want map[string]json.RawMessage
		if json.Unmarshal(raw, &want) != nil || want == nil {
			return // for an invalid object it need only return
		}
		if err != nil || len(got) != len(want) {
			t.Fatalf("fields: %v, %v; want %v", got, err, want)
		}
		for key, value := range want {
			if !bytes.Equal(got[key], value) {
				t.Errorf("%q is %q, want %q", key, got[key], value)
			}
		}
	})
}

// must ends the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
