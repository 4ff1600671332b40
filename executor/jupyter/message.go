package jupyter

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
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
	// Cut counts the bytes of Metadata and Content, which are missing because the message
	// was over Options.MaxFrame.
	Cut int64

	rawHeader json.RawMessage // becomes the parent header of replies
	frames    [][]byte
	size      int64 // of all frames
	extra     int64 // bytes besides these frames: what was decoded of the headers, and each frame's slice
	taken     int64 // from the share of all sockets
	pool      *framePool
	inbox     *inbox // that it was received from; nil for the result of a Request
}

// Release lets later messages reuse the frames. Metadata, Content and all that was
// decoded without a copy are invalid afterwards. Without Release, the message counts as in
// use, and later big ones are cut.
func (m *Message) Release() {
	m.Metadata, m.Content = nil, nil
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
	if direct, ok := v.(json.Unmarshaler); ok {
		return direct.UnmarshalJSON(m.Content)
	}
	return json.Unmarshal(m.Content, v)
}

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
	if wire.excess != nil {
		m.Cut = wire.excess.dropped
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

// Types of messages (Jupyter message protocol 5.3). Other types can be sent and received too.
const (
	MsgExecuteRequest    = "execute_request"
	MsgExecuteReply      = "execute_reply"
	MsgExecuteInput      = "execute_input"
	MsgExecuteResult     = "execute_result"
	MsgStream            = "stream"
	MsgDisplayData       = "display_data"
	MsgUpdateDisplayData = "update_display_data"
	MsgClearOutput       = "clear_output"
	MsgError             = "error"
	MsgStatus            = "status"
	MsgInputRequest      = "input_request"
	MsgInputReply        = "input_reply"
	MsgKernelInfoRequest = "kernel_info_request"
	MsgKernelInfoReply   = "kernel_info_reply"
	MsgShutdownRequest   = "shutdown_request"
	MsgComm              = "comm_msg"
)

const (
	// maxMIMETypes bounds the types that are decoded of one display: a map of millions
	// of empty payloads would take gigabytes.
	maxMIMETypes = 1000
)

// ExecuteRequest is the content of execute_request.
type ExecuteRequest struct {
	Code            string            `json:"code"`
	Silent          bool              `json:"silent"`
	StoreHistory    bool              `json:"store_history"`
	UserExpressions map[string]string `json:"user_expressions,omitempty"` // IPython iterates over them: never null
	AllowStdin      bool              `json:"allow_stdin"`
	StopOnError     bool              `json:"stop_on_error"`
}

// ExecuteReply is the content of execute_reply.
type ExecuteReply struct {
	Status          string      `json:"status"` // "ok", "error" or "aborted"
	ExecutionCount  int         `json:"execution_count"`
	EName           string      `json:"ename"`
	EValue          string      `json:"evalue"`
	Traceback       Traceback   `json:"traceback"`
	UserExpressions Expressions `json:"user_expressions"`
	Payload         Payloads    `json:"payload"`
}

// ErrorContent is the content of error.
type ErrorContent struct {
	EName     string    `json:"ename"`
	EValue    string    `json:"evalue"`
	Traceback Traceback `json:"traceback"`
}

// ClearOutput is the content of clear_output.
type ClearOutput struct {
	Wait bool `json:"wait"`
}

// Status is the content of status.
type Status struct {
	ExecutionState string `json:"execution_state"` // "starting", "busy" or "idle"
}

// InputRequest is the content of input_request.
type InputRequest struct {
	Prompt   string `json:"prompt"`
	Password bool   `json:"password"`
}

// InputReply is the content of input_reply. Value is a text for input().
type InputReply struct {
	Value any `json:"value"`
}

// ShutdownRequest is the content of shutdown_request.
type ShutdownRequest struct {
	Restart bool `json:"restart"`
}

// Stream is the content of stream. Text is a JSON string, part of the Message's frame;
// the function Text decodes it.
type Stream struct {
	Name string // "stdout" or "stderr"
	Text json.RawMessage
}

// UnmarshalJSON copies nothing: s is valid as long as raw.
func (s *Stream) UnmarshalJSON(raw []byte) error {
	*s = Stream{}
	var failed error
	err := fields(raw, func(key string, value json.RawMessage) {
		switch key {
		case "name":
			failed = json.Unmarshal(value, &s.Name)
		case "text":
			s.Text = value
		}
	})
	return cmp.Or(err, failed)
}

// DisplayData is the content of display_data, update_display_data and
// execute_result. Data and Metadata are parts of the Message's frame.
type DisplayData struct {
	Data           map[string]json.RawMessage // by MIME type, the first maxMIMETypes
	OmittedTypes   int                        // that are not in Data
	Metadata       json.RawMessage
	Transient      Transient
	ExecutionCount int // execute_result only
}

// Transient is the part of a display_data message that is not to be stored.
type Transient struct {
	DisplayID string `json:"display_id"`
}

// UnmarshalJSON copies no payload: d is valid as long as raw.
func (d *DisplayData) UnmarshalJSON(raw []byte) error {
	*d = DisplayData{Data: map[string]json.RawMessage{}}
	var failed error
	keep := func(err error) { failed = cmp.Or(failed, err) }
	err := fields(raw, func(key string, value json.RawMessage) {
		switch key {
		case "data":
			keep(fields(value, d.add))
		case "metadata":
			d.Metadata = value
		case "transient":
			keep(json.Unmarshal(value, &d.Transient))
		case "execution_count":
			keep(json.Unmarshal(value, &d.ExecutionCount))
		}
	})
	return cmp.Or(err, failed)
}

// add adds a payload, or counts it if there are too many.
func (d *DisplayData) add(mime string, payload json.RawMessage) {
	if len(d.Data) >= maxMIMETypes {
		d.OmittedTypes++
		return
	}
	d.Data[mime] = payload
}

var errSyntax = errors.New("not a JSON object")

// fields calls each with the members of a JSON object. A value is a part of raw. It checks
// only as much syntax as it needs to find the ends of values; decoding a value checks the
// rest.
func fields(raw []byte, each func(key string, value json.RawMessage)) error {
	s := scanner{rest: raw}
	if !s.take('{') {
		return errSyntax
	}
	for more := !s.take('}'); more; {
		key, ok := s.key()
		if !ok || !s.take(':') {
			return errSyntax
		}
		value, ok := s.value()
		if !ok {
			return errSyntax
		}
		each(key, value)
		if more = s.take(','); !more && !s.take('}') {
			return errSyntax
		}
	}
	s.space()
	if len(s.rest) > 0 {
		return errSyntax
	}
	return nil
}

// scanner reads JSON text.
type scanner struct {
	rest []byte
}

func (s *scanner) space() { s.rest = bytes.TrimLeft(s.rest, " \t\r\n") }

// take skips white space and, if it follows, c.
func (s *scanner) take(c byte) bool {
	s.space()
	if len(s.rest) == 0 || s.rest[0] != c {
		return false
	}
	s.rest = s.rest[1:]
	return true
}

func (s *scanner) key() (string, bool) {
	s.space()
	n, ok := stringEnd(s.rest)
	if !ok {
		return "", false
	}
	var key string
	err := json.Unmarshal(s.rest[:n], &key)
	s.rest = s.rest[n:]
	return key, err == nil
}

// value reads one value, up to the end of the string or until all brackets are closed.
func (s *scanner) value() (json.RawMessage, bool) {
	s.space()
	start, depth := s.rest, 0
	for n := 0; n < len(start); n++ {
		switch c := start[n]; c {
		case '"':
			size, ok := stringEnd(start[n:])
			if !ok {
				return nil, false
			}
			n += size - 1
		case '{', '[':
			depth++
			continue
		case '}', ']':
			if depth--; depth < 0 {
				return s.cut(start, n)
			}
		case ',', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return s.cut(start, n)
			}
			continue
		default:
			continue
		}
		if depth == 0 {
			return s.cut(start, n+1)
		}
	}
	return nil, false // the bracket of the object is missing
}

func (s *scanner) cut(start []byte, n int) (json.RawMessage, bool) {
	s.rest = start[n:]
	return start[:n:n], n > 0
}

// stringEnd returns the length of the JSON string that b begins with, quotes included.
func stringEnd(b []byte) (int, bool) {
	if len(b) == 0 || b[0] != '"' {
		return 0, false
	}
	for n := 1; n < len(b); {
		quote := bytes.IndexByte(b[n:], '"')
		if quote < 0 {
			return 0, false
		}
		end := n + quote
		escapes := 0
		for b[end-1-escapes] == '\\' {
			escapes++ // the opening quote ends the loop
		}
		n = end + 1
		if escapes%2 == 0 {
			return n, true
		}
	}
	return 0, false
}

var errNotString = errors.New("not a JSON string")

// Text decodes a JSON string and passes the text to emit in pieces of at most size bytes
// (but at least 4), cut between characters. It never holds the complete text, and a piece
// is valid only during its call. As in encoding/json, invalid characters become U+FFFD.
// When it returns an error, the text before the fault has been emitted.
func Text(raw json.RawMessage, size int, emit func(chunk []byte)) error {
	if len(raw) < 2 || raw[0] != '"' || raw[len(raw)-1] != '"' {
		return errNotString
	}
	t := texter{rest: raw[1 : len(raw)-1], emit: emit, max: max(size, utf8.UTFMax)}
	t.chunk = make([]byte, 0, min(t.max, len(raw)))
	for len(t.rest) > 0 {
		if err := t.step(); err != nil {
			t.flush()
			return err
		}
	}
	t.flush()
	return nil
}

// texter is the state of one call of Text.
type texter struct {
	rest  []byte
	chunk []byte
	max   int
	emit  func([]byte)
}

// step decodes the plain text up to the next escape, or one escape.
func (t *texter) step() error {
	n := 0
	for n < len(t.rest) && t.rest[n] != '\\' {
		if c := t.rest[n]; c == '"' || c < ' ' {
			return errNotString
		}
		n++
	}
	if n > 0 {
		t.plain(t.rest[:n])
		t.rest = t.rest[n:]
		return nil
	}
	return t.escape()
}

func (t *texter) plain(run []byte) {
	if utf8.Valid(run) {
		t.valid(run)
		return
	}
	for len(run) > 0 {
		r, size := utf8.DecodeRune(run) // U+FFFD for each invalid byte
		t.rune(r)
		run = run[size:]
	}
}

// valid adds UTF-8 text, divided into chunks between characters.
func (t *texter) valid(run []byte) {
	for len(run) > 0 {
		n := min(len(run), t.max-len(t.chunk))
		for n > 0 && n < len(run) && !utf8.RuneStart(run[n]) {
			n--
		}
		if n == 0 {
			t.flush()
			continue
		}
		t.chunk = append(t.chunk, run[:n]...)
		run = run[n:]
	}
}

func (t *texter) rune(r rune) {
	if len(t.chunk)+utf8.RuneLen(r) > t.max {
		t.flush()
	}
	t.chunk = utf8.AppendRune(t.chunk, r)
}

func (t *texter) flush() {
	if len(t.chunk) > 0 {
		t.emit(t.chunk)
		t.chunk = t.chunk[:0]
	}
}

var escapes = [256]rune{
	'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t',
}

// escape decodes one escape, or the two of a surrogate pair.
func (t *texter) escape() error {
	if len(t.rest) < 2 {
		return errNotString
	}
	if r := escapes[t.rest[1]]; r != 0 {
		t.rune(r)
		t.rest = t.rest[2:]
		return nil
	}
	r, ok := unit(t.rest)
	if !ok {
		return errNotString
	}
	t.rest = t.rest[6:]
	if utf16.IsSurrogate(r) {
		low, _ := unit(t.rest)
		if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
			t.rest = t.rest[6:]
		}
	}
	t.rune(r)
	return nil
}

// unit reads \uXXXX at the start of b.
func unit(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	r, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	return rune(r), err == nil
}
