package jupyter

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
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
		"stream":            {wireOf(t, "key", MsgStream, map[string]string{"name": "stdout", "text": long}), true},
		"display":           {wireOf(t, "key", MsgDisplayData, map[string]any{"data": map[string]string{"text/plain": long}}), true},
		"one buffer":        {wireOf(t, "key", MsgDisplayData, nil, make([]byte, bound)), false},
		"many frames":       {wireOf(t, "key", MsgDisplayData, nil, make([][]byte, 2*maxFrames)...), false},
		"long header":       {wireOf(t, "key", MsgStatus, map[string]string{"execution_state": "idle"}), false},
		"one byte too many": {wireOf(t, "key", MsgDisplayData, map[string]string{"x": strings.Repeat("x", bound)}), true},
	} {
		t.Run(name, func(t *testing.T) {
			m, next := frameRead(t, c.wire, bound, "key")
			if m.ParentHeader.MsgID != "p" || (m.Cut > 0) != c.cut || next.Header.MsgID != "next" || next.Cut != 0 {
				t.Errorf("message = %+v, then %+v", m, next)
			}
		})
	}
}

func TestMessageAtTheBoundIsCompleteAndOneByteOverIsCut(t *testing.T) {
	wire := wireOf(t, "key", MsgDisplayData, map[string]string{"x": strings.Repeat("x", 1000)})
	frames, err := newFrameReader(bytes.NewReader(wire), 1<<20, &framePool{}, nil).message()
	if err != nil {
		t.Fatal(err)
	}
	size := int64(len(bytes.Join(frames.frames, nil)))
	if m, _ := frameRead(t, wire, size, "key"); m.Cut != 0 || len(m.Content) != len(`{"x":""}`)+1000 {
		t.Errorf("at the bound: %+v", m)
	}
	if m, _ := frameRead(t, wire, size-1, "key"); m.Cut != int64(len(`{"x":""}`))+1000 || len(m.Content) != 0 {
		t.Errorf("one over it: %+v", m)
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

// Messages over the bound: a print of letters, one of NULs (six bytes each in JSON) and a
// picture. The connection remains usable, what follows arrives, and little memory is used.
// The print tests the default bound on Colab's stack; an eighth of it suffices elsewhere.
func TestHugeMessagesOfARealKernelAreDiscarded(t *testing.T) {
	tier.Long(t)
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		first := int64(defaultMaxFrame)
		if s.Name != "old" {
			first /= 8
		}
		for _, test := range []struct {
			code  string
			bound int64
		}{
			{fmt.Sprintf("print('x'*%d)", first*9/8), first},
			{"print(chr(0)*5_625_000)", defaultMaxFrame / 8},
			{"from IPython.display import display, Image\nimport os\nraw = b'\\x89PNG\\r\\n\\x1a\\n' + os.urandom(1 << 18)*103\ndisplay(Image(data=raw, format='png'))", defaultMaxFrame / 8},
		} {
			c := ipcKernel(t, s, Options{MaxFrame: test.bound})
			before, peak, cut := heldBytes(), int64(0), int64(0)
			o := execute(t, c, test.code, func(m *Message) {
				peak = max(peak, heldBytes())
				cut += m.Cut
			})
			if o.reply.Status != "ok" || cut < test.bound-2*tornBytes {
				t.Errorf("%.30s: reply %s, %d bytes cut, %d of output", test.code, o.reply.Status, cut, len(o.stdout))
			}
			// Not in the same execution: on a loaded machine ipykernel stops waiting for
			// the big message after 10 s and reports idle first.
			if next := execute(t, c, "print('tail')", nil); !strings.HasSuffix(next.stdout, "tail\n") {
				t.Errorf("%.30s: the next execution printed %q", test.code, next.stdout)
			}
			if grown := peak - before; grown > 64<<20 {
				t.Errorf("%.30s: it used %d MiB more", test.code, grown>>20)
			}
		}
	})
}
