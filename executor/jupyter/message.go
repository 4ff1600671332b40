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

	rawHeader json.RawMessage // the parent header of answers
	frames    [][]byte
	size      int64 // of all frames
	pool      *framePool
	inbox     *inbox // that handed it out, nil when it came as a reply
}

// Release gives the frames back, to be used for later messages: Metadata, Content,
// Buffers and all that was decoded without a copy are invalid afterwards. Only
// who has done with a message may call it, and need not: then the collector does
// its work, at the price of memory in a flood.
func (m *Message) Release() {
	m.Metadata, m.Content, m.Buffers = nil, nil, nil
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
		Channel: m.Channel, Header: m.Header, ParentHeader: m.ParentHeader, Dropped: m.Dropped,
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
	if direct, ok := v.(json.Unmarshaler); ok {
		return direct.UnmarshalJSON(m.Content)
	}
	return json.Unmarshal(m.Content, v)
}

// delimiter stands between routing identities and the message.
var delimiter = []byte("<IDS|MSG>")

var (
	errMalformed = errors.New("malformed message")
	errForged    = errors.New("signature is wrong")
)

// parseMessage verifies the frames of a message, then takes them apart. The
// signature goes first: nothing of a forged message is looked at.
func parseMessage(channel Channel, frames [][]byte, key signer) (*Message, error) {
	parts := frames
	for len(parts) > 0 && !bytes.Equal(parts[0], delimiter) {
		parts = parts[1:]
	}
	if len(parts) < 6 {
		return nil, fmt.Errorf("%w: %d frames from the delimiter on", errMalformed, len(parts))
	}
	signature, header, parent, metadata, content := parts[1], parts[2], parts[3], parts[4], parts[5]
	if !key.verify(signature, header, parent, metadata, content) {
		return nil, errForged
	}
	if len(header) > maxHeader || len(parent) > maxHeader {
		return nil, fmt.Errorf("%w: a header of over %d bytes", errMalformed, maxHeader)
	}
	m := &Message{
		Channel: channel, Metadata: metadata, Content: content, Buffers: parts[6:],
		rawHeader: header, frames: frames,
	}
	if err := parseHeader(header, &m.Header); err != nil || m.Header.MsgType == "" {
		return nil, fmt.Errorf("%w: header", errMalformed)
	}
	if err := parseHeader(parent, &m.ParentHeader); err != nil {
		return nil, fmt.Errorf("%w: parent header", errMalformed)
	}
	for _, frame := range frames {
		m.size += int64(len(frame))
	}
	return m, nil
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
