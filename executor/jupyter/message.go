package jupyter

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// Channel is one of a kernel's channels that carry messages.
type Channel string

// The channels. The fifth, heartbeat, is Client.Heartbeat.
const (
	Shell   Channel = "shell"
	Control Channel = "control"
	IOPub   Channel = "iopub"
	Stdin   Channel = "stdin"
)

// ProtocolVersion is the version of the message protocol in our headers.
const ProtocolVersion = "5.3"

// maxHeader bounds a header, which real kernels write in about 200 bytes.
const maxHeader = 64 << 10

// Header names a message.
type Header struct {
	MsgID    string `json:"msg_id"`
	MsgType  string `json:"msg_type"`
	Session  string `json:"session"`
	Username string `json:"username"`
	Date     string `json:"date"` // ISO 8601
	Version  string `json:"version"`
}

// Dropped counts messages that came faster than they were received.
type Dropped struct {
	Messages, Bytes int64
}

// Message is what came from a kernel. Metadata, Content and Buffers are the bytes
// of the frames themselves: nothing looked at them but for the signature.
type Message struct {
	Channel      Channel
	Header       Header
	ParentHeader Header // zero where the kernel names no parent
	Metadata     json.RawMessage
	Content      json.RawMessage
	Buffers      [][]byte
	// Dropped counts what fell out just before this message, of the same parent.
	Dropped Dropped
	// Cut counts the bytes of Metadata and Content that are missing because the message
	// was over Options.MaxFrame. Of a stream, Content is the head, which Decode reads,
	// and TornEnd is what is left of the end; of others both are empty.
	Cut int64

	rawHeader json.RawMessage // the parent header of answers
	frames    [][]byte
	size      int64  // of all frames
	tail      []byte // of the content, where Cut is not 0
	pool      *framePool
	inbox     *inbox // that handed it out, nil when it came as a reply
}

// Release gives the frames back, to be used for later messages: Metadata, Content,
// Buffers and all that was decoded without a copy are invalid afterwards. Only
// who has done with a message may call it, and need not: then the collector does
// its work, at the price of memory in a flood.
func (m *Message) Release() {
	m.Metadata, m.Content, m.Buffers, m.tail = nil, nil, nil, nil
	if m.frames == nil {
		return
	}
	m.pool.put(m.frames)
	m.frames = nil
	if m.inbox != nil {
		m.inbox.released(m)
	}
}

// Keep returns a copy that outlives Release.
func (m *Message) Keep() *Message {
	kept := &Message{
		Channel: m.Channel, Header: m.Header, ParentHeader: m.ParentHeader, Dropped: m.Dropped, Cut: m.Cut,
		rawHeader: m.rawHeader, // small, so never in the pool
		Metadata:  bytes.Clone(m.Metadata), Content: bytes.Clone(m.Content),
	}
	for _, buffer := range m.Buffers {
		kept.Buffers = append(kept.Buffers, bytes.Clone(buffer))
	}
	return kept
}

// Decode decodes Content into v. Unlike json.Unmarshal, which reads everything
// twice before it hands anything on, it goes through big contents once where v is
// a Stream or a DisplayData.
func (m *Message) Decode(v any) error {
	if stream, ok := v.(*Stream); ok && m.Cut > 0 {
		return tornStream(m.Content, stream)
	}
	if direct, ok := v.(json.Unmarshaler); ok {
		return direct.UnmarshalJSON(m.Content)
	}
	return json.Unmarshal(m.Content, v)
}

// TornEnd is the end of a stream's text, as a JSON string, where Cut is not 0. It is
// nil where nothing is left of it.
func (m *Message) TornEnd() json.RawMessage { return tornEnd(m.tail) }

// delimiter stands between routing identities and the message.
var delimiter = []byte("<IDS|MSG>")

var (
	errMalformed = errors.New("malformed message")
	errForged    = errors.New("signature is wrong")
)

// fromDelimiter is the message without routing identities; empty when there is none.
func fromDelimiter(frames [][]byte) [][]byte {
	for len(frames) > 0 && !bytes.Equal(frames[0], delimiter) {
		frames = frames[1:]
	}
	return frames
}

// parseMessage verifies the frames of a message, then takes them apart. The
// signature goes first: nothing of a forged message is looked at.
func parseMessage(channel Channel, wire wireMessage, key signer) (*Message, error) {
	parts := fromDelimiter(wire.frames)
	if wire.excess == nil && len(parts) <= contentFrame || len(parts) <= parentFrame {
		return nil, fmt.Errorf("%w: %d frames from the delimiter on", errMalformed, len(parts))
	}
	m := &Message{Channel: channel, rawHeader: parts[headerFrame], frames: wire.frames}
	if !verified(parts, wire.excess, key) {
		return nil, errForged
	}
	if len(parts[headerFrame]) > maxHeader || len(parts[parentFrame]) > maxHeader {
		return nil, fmt.Errorf("%w: a header of over %d bytes", errMalformed, maxHeader)
	}
	if err := parseHeader(parts[headerFrame], &m.Header); err != nil || m.Header.MsgType == "" {
		return nil, fmt.Errorf("%w: header", errMalformed)
	}
	if err := parseHeader(parts[parentFrame], &m.ParentHeader); err != nil {
		return nil, fmt.Errorf("%w: parent header", errMalformed)
	}
	if len(parts) > metadataFrame {
		m.Metadata = parts[metadataFrame]
	}
	if len(parts) > contentFrame {
		m.Content, m.Buffers = parts[contentFrame], parts[contentFrame+1:]
	}
	for _, frame := range wire.frames {
		m.size += int64(len(frame))
	}
	if x := wire.excess; x != nil && len(parts) <= contentFrame {
		m.Cut, m.Content, m.tail = x.dropped, x.head, x.tail
		if m.Cut == 0 { // it was the other frames that took the room
			m.Content, m.tail = append(x.head, x.tail...), nil
		}
		m.size += int64(len(m.Content) + len(m.tail))
	}
	return m, nil
}

// verified reports whether the signature is that of the parts and what did not fit.
func verified(parts [][]byte, over *excess, key signer) bool {
	if over != nil {
		return over.verified(parts[signatureFrame], key)
	}
	return key.verify(parts[signatureFrame], parts[headerFrame:contentFrame+1]...)
}

// parseHeader leaves fields of an unexpected type empty: some kernels write a
// number or null where we want a text.
func parseHeader(raw []byte, header *Header) error {
	err := json.Unmarshal(raw, header)
	var mistyped *json.UnmarshalTypeError
	if errors.As(err, &mistyped) && mistyped.Field != "" {
		return nil
	}
	return err
}

// encodeMessage returns the frames of a message of ours. Content may be nil.
func encodeMessage(header Header, parent any, content any, key signer) ([][]byte, error) {
	if content == nil {
		content = struct{}{}
	}
	rawHeader, err := json.Marshal(header)
	if err != nil {
		return nil, err
	}
	rawParent, err := json.Marshal(parent)
	if err != nil {
		return nil, err
	}
	rawContent, err := json.Marshal(content)
	if err != nil {
		return nil, err
	}
	metadata := []byte("{}")
	signature := key.sign(rawHeader, rawParent, metadata, rawContent)
	return [][]byte{delimiter, signature, rawHeader, rawParent, metadata, rawContent}, nil
}
