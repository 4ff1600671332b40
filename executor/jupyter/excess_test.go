package jupyter

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

// frameRead reads a message with this bound, and the one that follows it.
func frameRead(t *testing.T, wire []byte, bound int64, key string) (first, next *Message) {
	t.Helper()
	r := newFrameReader(bytes.NewReader(append(wire, stream(t, key, "p", "next")...)), bound, &framePool{}, signer(key))
	var got []*Message
	for range 2 {
		raw, err := r.message()
		if err != nil {
			t.Fatal(err)
		}
		m, err := parseMessage(IOPub, raw, signer(key))
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, m)
	}
	return got[0], got[1]
}

func wireOf(t testing.TB, key, msgType string, content any, buffers ...[]byte) []byte {
	t.Helper()
	frames, err := encodeMessage(Header{MsgID: "id", MsgType: msgType}, Header{MsgID: "p"}, content, signer(key))
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parseMessage(IOPub, raw, signer("key")); err == nil {
		t.Error("it was accepted")
	}
}

// The head of a stream has complete characters, wherever the message is torn.
func TestTornStreamReadsAsItsBeginning(t *testing.T) {
	text := "é\n\\\\\" \U0001F600 ☃ end"
	escaped, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	raw := fmt.Appendf(nil, `{"name": "stdout", "text": %s`, strings.ReplaceAll(string(escaped), "☃", `\u2603`))
	for n := len(`{"name": "stdout", "text": "`); n < len(raw); n++ {
		var s Stream
		if err := tornStream(raw[:n], &s); err != nil {
			t.Fatalf("%q: %v", raw[:n], err)
		}
		var got string
		if err := Text(s.Text, 1<<10, func(piece []byte) { got += string(piece) }); err != nil {
			t.Fatalf("%q: %v", raw[:n], err)
		}
		if s.Name != "stdout" || !strings.HasPrefix(text, got) || !utf8.ValidString(got) || strings.Contains(got, "\uFFFD") {
			t.Errorf("%q reads as %q", raw[:n], got)
		}
	}
}

// The end of a stream over the bound is readable, wherever it is torn.
func TestEndOfATornStreamIsAnEndOfItsText(t *testing.T) {
	for _, unit := range []string{"x", "\x00", "é", `\`, `\n`, "\U0001F600", "a\n", `"`} {
		text := strings.Repeat(unit, 3000) + "tail\n"
		for bound := int64(1200); bound < 1230; bound++ {
			m, _ := frameRead(t, wireOf(t, "key", MsgStream, map[string]string{"name": "stdout", "text": text}), bound, "key")
			var got string
			if end := m.TornEnd(); end != nil {
				if err := Text(end, 1<<10, func(piece []byte) { got += string(piece) }); err != nil {
					t.Fatalf("%q: %v", unit, err)
				}
			}
			if m.Cut == 0 || !strings.HasSuffix(text, got) || !strings.HasSuffix(got, "tail\n") && unit != `\` {
				t.Errorf("%q, bound %d: %d bytes cut, the end is %q", unit, bound, m.Cut, got)
			}
		}
	}
}
