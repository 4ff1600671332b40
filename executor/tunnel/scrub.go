package tunnel

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"slices"

	"golang.ngrok.com/muxado/v2"
	"golang.ngrok.com/muxado/v2/frame"
)

// forwardsTo is what ngrok's dashboard and API show as the place our endpoint
// leads to.
const forwardsTo = "colab-relay"

const (
	frameHeader = 8                    // length 24 bits, type 4, flags 4, stream 32
	typeHeader  = 4                    // a stream's first bytes: what it is for
	bindStream  = muxado.StreamType(1) // the call that asks for an endpoint
	bufferBytes = 64 << 10             // of each direction
	forwardsKey = `"ForwardsTo":"`     // quotes inside JSON strings are escaped, so this is the key
)

// scrub copies what the agent says to ngrok frame by frame and puts forwardsTo
// in each request for an endpoint, in place of the host name, path and pid that
// the SDK writes there and has no option for. The value is padded with blanks
// after its closing quote, which JSON allows, so every length stays true and
// visitors' data is never looked into.
func scrub(to io.Writer, from io.Reader) error {
	r, w := bufio.NewReaderSize(from, bufferBytes), bufio.NewWriterSize(to, bufferBytes)
	binds := map[frame.StreamId]bool{} // open streams of bindStream: one or two
	for {
		if r.Buffered() == 0 {
			if err := w.Flush(); err != nil {
				return err
			}
		}
		header, err := r.Peek(frameHeader)
		if err != nil {
			return err
		}
		length := int64(header[0])<<16 | int64(header[1])<<8 | int64(header[2])
		kind, flags := frame.Type(header[3]>>4), frame.Flags(header[3]&0x0f)
		id := frame.StreamId(binary.BigEndian.Uint32(header[4:]))
		if _, err := io.CopyN(w, r, frameHeader); err != nil {
			return err
		}
		if kind == frame.TypeData && flags.IsSet(frame.FlagDataSyn) && length >= typeHeader {
			head, err := r.Peek(typeHeader)
			if err != nil {
				return err
			}
			if muxado.StreamType(binary.BigEndian.Uint32(head)) == bindStream {
				binds[id] = true
			}
		}
		if err := copyPayload(w, r, length, kind == frame.TypeData && binds[id]); err != nil {
			return err
		}
		if kind == frame.TypeRst || kind == frame.TypeData && flags.IsSet(frame.FlagDataFin) {
			delete(binds, id)
		}
	}
}

// copyPayload copies length bytes, at most 16 MiB by the frame's own format.
func copyPayload(w io.Writer, r io.Reader, length int64, bind bool) error {
	if !bind {
		_, err := io.CopyN(w, r, length)
		return err
	}
	payload, err := io.ReadAll(io.LimitReader(r, length))
	if err != nil {
		return err
	}
	hideForwardsTo(payload)
	_, err = w.Write(payload)
	return err
}

// hideForwardsTo overwrites the value of the first key ForwardsTo in place.
func hideForwardsTo(payload []byte) {
	start := bytes.Index(payload, []byte(forwardsKey))
	if start < 0 {
		return
	}
	value := payload[start+len(forwardsKey):]
	end := closingQuote(value)
	if end < 0 {
		return
	}
	harmless := append([]byte(forwardsTo[:min(len(forwardsTo), end)]), '"')
	n := copy(value, harmless)
	copy(value[n:end+1], slices.Repeat([]byte{' '}, end+1-n))
}

// closingQuote finds the end of a JSON string, or -1.
func closingQuote(s []byte) int {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return -1
}
