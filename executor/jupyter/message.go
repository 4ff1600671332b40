package jupyter

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// Channel is one of a kernel's channels that carry messages.
type Channel string

// The channels. The fifth one, heartbeat, is not used: only the end of the process shows
// that a kernel is dead.
const (
	Shell   Channel = "shell"
	Control Channel = "control"
	IOPub   Channel = "iopub"
	Stdin   Channel = "stdin"
)

// protocolVersion is the version of the message protocol in our headers.
const protocolVersion = "5.3"

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

// Dropped counts messages that arrived faster than they were received.
type Dropped struct {
	Messages, Bytes int64
}

// Message is a message from a kernel. Metadata and Content are the frames
// themselves; only the signature was checked.
type Message struct {
	Channel      Channel
	Header       Header
	ParentHeader Header // zero where the kernel names no parent
	Metadata     json.RawMessage
	Content      json.RawMessage
	// Dropped counts messages of the same parent that were dropped just before this one.
	Dropped Dropped
	// Cut counts the bytes of Metadata and Content that are missing because the message
	// was over Options.MaxFrame. Of a stream, Decode reads the beginning that is left and
	// TornEnd returns the end; of other messages nothing is left.
	Cut int64

	rawHeader json.RawMessage // becomes the parent header of replies
	frames    [][]byte
	size      int64  // of all frames
	extra     int64  // bytes besides these frames: what was decoded of the headers, and each frame's slice
	taken     int64  // from the share of all sockets
	tail      []byte // of the content, if Cut is not 0
	pool      *framePool
	inbox     *inbox // that it was received from; nil for the result of a Request
}

// Release lets later messages reuse the frames. Metadata, Content and all that was
// decoded without a copy are invalid afterwards. Without Release, the message counts as in
// use, and later big ones are cut.
func (m *Message) Release() {
	m.Metadata, m.Content, m.tail = nil, nil, nil
	if m.frames == nil {
		return
	}
	m.pool.put(m.frames, m.taken)
	m.frames = nil
	if m.inbox != nil {
		m.inbox.released(m)
	}
}

// Buffers returns the binary frames after the content. They are valid until Release.
func (m *Message) Buffers() [][]byte {
	if parts := fromDelimiter(m.frames); len(parts) > contentFrame+1 {
		return parts[contentFrame+1:]
	}
	return nil
}

// Parent returns m without metadata and content. It is valid after Release, and can be
// passed to Reply.
func (m *Message) Parent() *Message {
	return &Message{
		Channel: m.Channel, Header: m.Header, ParentHeader: m.ParentHeader, Dropped: m.Dropped, Cut: m.Cut,
		rawHeader: bytes.Clone(m.rawHeader),
	}
}

// Decode decodes Content into v. If v is a Stream or a DisplayData, it reads a big content
// only once; json.Unmarshal would read it twice before it decodes.
func (m *Message) Decode(v any) error {
	if stream, ok := v.(*Stream); ok && m.Cut > 0 {
		return tornStream(m.Content, stream)
	}
	if direct, ok := v.(json.Unmarshaler); ok {
		return direct.UnmarshalJSON(m.Content)
	}
	return json.Unmarshal(m.Content, v)
}

// TornEnd returns the end of a stream's text as a JSON string if Cut is not 0. It is nil
// if nothing is left of it.
func (m *Message) TornEnd() json.RawMessage { return tornEnd(m.tail) }

// delimiter separates the routing identities from the message.
var delimiter = []byte("<IDS|MSG>")

var (
	errMalformed = errors.New("malformed message")
	errForged    = errors.New("signature is wrong")
)

// fromDelimiter returns the frames from the delimiter on, none if there is no delimiter.
func fromDelimiter(frames [][]byte) [][]byte {
	for len(frames) > 0 && !bytes.Equal(frames[0], delimiter) {
		frames = frames[1:]
	}
	return frames
}

// parseMessage verifies the signature of a message and then parses it. Nothing of a forged
// message is parsed.
func parseMessage(channel Channel, wire wireMessage, key signer) (*Message, error) {
	parts := fromDelimiter(wire.frames)
	if wire.excess == nil && len(parts) <= contentFrame || len(parts) <= parentFrame {
		return nil, fmt.Errorf("%w: %d frames from the delimiter on", errMalformed, len(parts))
	}
	m := &Message{Channel: channel, rawHeader: parts[headerFrame], frames: wire.frames, taken: wire.taken}
	m.extra = int64(len(parts[headerFrame]) + len(parts[parentFrame]) + len(wire.frames)*frameOverhead)
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
		m.Content = parts[contentFrame]
	}
	for _, frame := range wire.frames {
		m.size += int64(len(frame))
	}
	if x := wire.excess; x != nil && len(parts) <= contentFrame {
		m.Cut, m.Content, m.tail = x.dropped, x.head, x.tail
		if m.Cut == 0 { // the other frames used up the bound
			m.Content, m.tail = append(x.head, x.tail...), nil
		}
		m.size += int64(len(m.Content) + len(m.tail))
	}
	return m, nil
}

// verified reports whether the signature is that of the parts and the excess.
func verified(parts [][]byte, over *excess, key signer) bool {
	if over != nil {
		return over.verified(parts[signatureFrame], key)
	}
	return key.verify(parts[signatureFrame], parts[headerFrame:contentFrame+1]...)
}

// parseHeader leaves fields of an unexpected type empty: some kernels write a number or
// null instead of a text.
func parseHeader(raw []byte, header *Header) error {
	err := json.Unmarshal(raw, header)
	var mistyped *json.UnmarshalTypeError
	if errors.As(err, &mistyped) && mistyped.Field != "" {
		return nil
	}
	return err
}

// encodeMessage returns the frames of a new message. Content may be nil.
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
