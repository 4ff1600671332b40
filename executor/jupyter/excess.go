package jupyter

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"unicode/utf8"
)

// tornBytes is how much of a stream message over the bound is kept at its beginning,
// and again at its end: ipykernel joins prints, so that the end may be what a later
// one said. Of other messages a torn piece is of no use.
const tornBytes = 8 << 20

// wireMessage is one message as it came over the wire.
type wireMessage struct {
	frames [][]byte
	excess *excess // nil where all frames fit
}

// Positions of the frames from the delimiter on.
const (
	signatureFrame = 1 + iota
	headerFrame
	parentFrame
	metadataFrame
	contentFrame
)

// excess takes in the frames of a message that don't fit its bound. It verifies
// what is signed, keeps the head of a stream's content and forgets the rest.
type excess struct {
	mac     func([]byte)  // takes what is signed
	sum     func() []byte // the signature of all that mac took
	keep    int           // bytes of head, and of tail; 0 unless it is a stream
	at      int           // position of the frame being taken, from the delimiter on
	head    []byte        // of the content
	tail    []byte        // of the content, at most twice keep
	dropped int64         // bytes of signed frames that are not held
}

// newExcess begins after the frames that did fit.
func newExcess(frames [][]byte, key signer, keep int) *excess {
	parts := fromDelimiter(frames)
	x := &excess{at: len(parts) - 1, mac: func([]byte) {}, sum: func() []byte { return nil }}
	if len(key) > 0 {
		mac := hmac.New(sha256.New, key)
		x.mac = func(p []byte) { mac.Write(p) }
		x.sum = func() []byte { return hex.AppendEncode(nil, mac.Sum(nil)) }
	}
	for i := headerFrame; i < len(parts) && i <= contentFrame; i++ {
		x.mac(parts[i])
	}
	var header Header
	if len(parts) > headerFrame && parseHeader(parts[headerFrame], &header) == nil && header.MsgType == MsgStream {
		x.keep = keep
	}
	return x
}

// frame begins the next frame.
func (x *excess) frame() { x.at++ }

// Write takes a piece of the present frame.
func (x *excess) Write(p []byte) (int, error) {
	if x.at > contentFrame {
		return len(p), nil // buffers are neither signed nor used
	}
	x.mac(p)
	if x.at != contentFrame {
		x.dropped += int64(len(p))
		return len(p), nil
	}
	kept := min(len(p), x.keep-len(x.head))
	x.head = append(x.head, p[:kept]...)
	x.tail = append(x.tail, p[kept:]...)
	if len(x.tail) > 2*x.keep {
		x.forget(len(x.tail) - x.keep)
	}
	return len(p), nil
}

// forget drops the first n bytes of the tail.
func (x *excess) forget(n int) {
	x.dropped += int64(n)
	x.tail = x.tail[:copy(x.tail, x.tail[n:])]
}

// end drops of the tail what can't be read: all before a place that is surely not
// inside an escape.
func (x *excess) end() {
	x.forget(max(0, len(x.tail)-x.keep))
	if x.dropped > 0 {
		x.forget(unescaped(x.tail))
	}
}

// unescaped finds where text in the middle of a JSON string can be read from: at a
// backslash that follows none, for it begins an escape, or after more bytes without
// one than an escape has. Where there is no such place it is the end.
func unescaped(text []byte) int {
	const escape = len(`\u0000`)
	for i := 1; i < len(text); i++ {
		if text[i] == '\\' && text[i-1] != '\\' {
			return i
		}
		if i >= escape && utf8.RuneStart(text[i]) && bytes.IndexByte(text[i-escape:i], '\\') < 0 {
			return i
		}
	}
	return len(text)
}

// verified reports whether signature is that of the whole message.
func (x *excess) verified(signature []byte, key signer) bool {
	return len(key) == 0 || hmac.Equal(signature, x.sum())
}

// tornEnd is a stream's last text as a JSON string; nil when none is left.
func tornEnd(tail []byte) json.RawMessage {
	tail = bytes.TrimRight(tail, " \t\r\n")
	text, ok := bytes.CutSuffix(tail, []byte(`"}`))
	if !ok || len(text) == 0 {
		return nil
	}
	return append(append([]byte{'"'}, text...), '"')
}

// tornStream reads the head of a stream's content: the members that are whole, and
// the beginning of a text that is not.
func tornStream(raw []byte, s *Stream) error {
	*s = Stream{}
	scan := scanner{rest: raw}
	if !scan.take('{') {
		return errSyntax
	}
	for {
		key, ok := scan.key()
		if !ok || !scan.take(':') {
			return errSyntax
		}
		scan.space()
		torn := scan.rest
		value, whole := scan.value()
		if !whole {
			value = closeString(torn)
		}
		switch key {
		case "name":
			if err := json.Unmarshal(value, &s.Name); err != nil {
				return errSyntax
			}
		case "text":
			s.Text = value
		}
		if !whole || !scan.take(',') {
			return nil
		}
	}
}

// closeString makes a JSON string of one whose end is missing. It ends before an
// escape or a character that is torn.
func closeString(torn []byte) json.RawMessage {
	if len(torn) == 0 || torn[0] != '"' {
		return nil
	}
	end := 1
	for {
		next := bytes.IndexByte(torn[end:], '\\')
		if next < 0 {
			end = len(torn)
			break
		}
		end += next
		step := 2
		if end+1 < len(torn) && torn[end+1] == 'u' {
			step = 6
		}
		if end+step > len(torn) {
			break
		}
		end += step
	}
	for cut := 1; cut < utf8.UTFMax && end-cut > 0; cut++ {
		if utf8.RuneStart(torn[end-cut]) {
			if !utf8.FullRune(torn[end-cut : end]) {
				end -= cut
			}
			break
		}
	}
	return append(torn[:end:end], '"')
}
