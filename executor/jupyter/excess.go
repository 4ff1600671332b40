package jupyter

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"hash"
	"unicode/utf8"
)

// tornBytes is how much of a stream message over the bound is kept at its beginning, and
// as much at its end: ipykernel joins prints, so that the end may be a later print. Parts
// of other messages are of no use.
const tornBytes = 8 << 20

// wireMessage is one message as it was received.
type wireMessage struct {
	frames [][]byte
	size   int64   // of the frames
	taken  int64   // from the share of all sockets
	excess *excess // nil if all frames fit the bound
}

// Positions of the frames from the delimiter on.
const (
	signatureFrame = 1 + iota
	headerFrame
	parentFrame
	metadataFrame
	contentFrame
)

// excess reads the frames of a message that do not fit the bound. It computes the
// signature, keeps the head and the tail of a stream's content and discards the rest.
type excess struct {
	mac     hash.Hash // of all signed frames
	keep    int       // bytes of head and of tail; 0 unless it is a stream
	at      int       // position of the current frame, from the delimiter on
	head    []byte    // of the content
	tail    []byte    // of the content, at most twice keep
	dropped int64     // bytes of signed frames that are not held
}

// newExcess returns an excess for what follows the frames that fit.
func newExcess(frames [][]byte, key signer, keep int) *excess {
	parts := fromDelimiter(frames)
	x := &excess{at: len(parts) - 1, mac: hmac.New(sha256.New, key)}
	for i := headerFrame; i < len(parts) && i <= contentFrame; i++ {
		x.mac.Write(parts[i])
	}
	var header Header
	if len(parts) > headerFrame && parseHeader(parts[headerFrame], &header) == nil && header.MsgType == MsgStream {
		x.keep = keep
	}
	return x
}

// Write adds a piece of the current frame.
func (x *excess) Write(p []byte) (int, error) {
	if x.at > contentFrame {
		return len(p), nil // buffers are neither signed nor used
	}
	x.mac.Write(p)
	if x.at != contentFrame {
		x.dropped += int64(len(p))
		return len(p), nil
	}
	kept := min(len(p), x.keep-len(x.head))
	x.head = append(x.head, p[:kept]...)
	x.tail = append(x.tail, p[kept:]...)
	if len(x.tail) > 2*x.keep {
		x.trimTail(len(x.tail) - x.keep)
	}
	return len(p), nil
}

// trimTail drops the first n bytes of the tail.
func (x *excess) trimTail(n int) {
	x.dropped += int64(n)
	x.tail = x.tail[:copy(x.tail, x.tail[n:])]
}

// end makes the tail readable: it drops what precedes a place that can't be inside an
// escape.
func (x *excess) end() {
	x.trimTail(max(0, len(x.tail)-x.keep))
	if x.dropped > 0 {
		x.trimTail(unescaped(x.tail))
	}
}

// unescaped returns the first place from which the middle of a JSON string can be read:
// a backslash that does not follow another one, because it begins an escape, or a place
// after as many bytes without a backslash as the longest escape has. Without such a place
// it returns the length.
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

// verified reports whether signature is that of the complete message.
func (x *excess) verified(signature []byte, key signer) bool {
	return len(key) == 0 || hmac.Equal(signature, hex.AppendEncode(nil, x.mac.Sum(nil)))
}

// tornEnd returns the end of a stream's text as a JSON string, nil if nothing is left of it.
func tornEnd(tail []byte) json.RawMessage {
	tail = bytes.TrimRight(tail, " \t\r\n")
	text, ok := bytes.CutSuffix(tail, []byte(`"}`))
	if !ok || len(text) == 0 {
		return nil
	}
	return append(append([]byte{'"'}, text...), '"')
}

// tornStream decodes the head of a stream's content: the complete members, and the
// beginning of an incomplete text.
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
		value, complete := scan.value()
		if !complete {
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
		if !complete || !scan.take(',') {
			return nil
		}
	}
}

// closeString ends a JSON string whose end is missing, before an incomplete escape or
// character.
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
