package colabapi

import (
	"encoding/json"
	"math"
	"strings"
	"time"

	"colabrelay/relay/plain"
	"colabrelay/relay/vm"
)

const (
	// maxMessage bounds one message of a kernel. A larger one ends the execution.
	maxMessage = 16 << 20
	// maxErrorText bounds the name and the text of an exception.
	maxErrorText = 1000
)

// message is a message of Jupyter's protocol, in the JSON form of its WebSockets.
type message struct {
	Header   header          `json:"header"`
	Parent   header          `json:"parent_header"`
	Metadata struct{}        `json:"metadata"`
	Content  json.RawMessage `json:"content"`
	Channel  string          `json:"channel"`
	Buffers  []struct{}      `json:"buffers"`
}

type header struct {
	ID       string `json:"msg_id,omitempty"`
	Type     string `json:"msg_type,omitempty"`
	Session  string `json:"session,omitempty"`
	Username string `json:"username"`
	Date     string `json:"date,omitempty"`
	Version  string `json:"version,omitempty"`
}

// execution is one execute_request and what it produced.
type execution struct {
	code, session, id string

	output      tail
	raised      *vm.ExecError
	replied     bool
	idle        bool
	reconnected bool // the message of its end may be lost
}

// request returns the execute_request, which leaves no trace in the kernel's history.
func (e *execution) request() []byte {
	content, _ := json.Marshal(map[string]any{
		"code": e.code, "silent": false, "store_history": false, "user_expressions": struct{}{}, "allow_stdin": false, "stop_on_error": true,
	})
	text, _ := json.Marshal(message{
		Header:  header{ID: e.id, Type: "execute_request", Session: e.session, Date: time.Now().UTC().Format(time.RFC3339Nano), Version: "5.3"},
		Content: content, Channel: "shell", Buffers: []struct{}{},
	})
	return text
}

// incoming is the part of a message that is read.
type incoming struct {
	Header  header          `json:"header"`
	Parent  header          `json:"parent_header"`
	Content json.RawMessage `json:"content"`
}

// receive reads one message. Messages of unknown form, and those about other requests, are
// ignored, except that the kernel died.
func (e *execution) receive(frame []byte) error {
	var m incoming
	if json.Unmarshal(frame, &m) != nil {
		return nil
	}
	var c struct {
		Text  string `json:"text"`
		State string `json:"execution_state"`
		Name  string `json:"ename"`
		Value string `json:"evalue"`
	}
	if json.Unmarshal(m.Content, &c) != nil {
		return nil
	}
	if m.Header.Type == "status" && (c.State == "restarting" || c.State == "autorestarting" || c.State == "dead") {
		return errKernelDied
	}
	if m.Parent.ID != e.id {
		return nil
	}
	switch m.Header.Type {
	case "stream":
		e.output.write(c.Text)
	case "error":
		e.raised = &vm.ExecError{Name: shortened(c.Name), Value: shortened(c.Value)}
	case "execute_reply":
		e.replied = true
	case "status":
		e.idle = e.idle || c.State == "idle"
	}
	return nil
}

// ended reports whether nothing more can follow: the reply and the idle status come over two
// sockets, in any order.
func (e *execution) ended() bool { return e.replied && e.idle }

// patience is how long to wait for the next message.
func (e *execution) patience() time.Duration {
	switch {
	case e.replied || e.idle:
		return idleGrace
	case e.reconnected:
		return silence
	}
	return math.MaxInt64
}

// lateEnd is the result if no more messages come.
func (e *execution) lateEnd() error {
	if e.replied || e.idle {
		return nil
	}
	return errEndLost
}

// shortened cuts an outside text to maxErrorText bytes at a whole character.
func shortened(text string) string {
	text = plain.Line(text)
	if len(text) <= maxErrorText {
		return text
	}
	return strings.ToValidUTF8(text[:maxErrorText], "")
}

// tail keeps the end of what was printed, at most vm.MaxOutput bytes.
type tail struct{ kept []byte }

func (t *tail) write(text string) {
	if len(text) >= vm.MaxOutput {
		t.kept = append(t.kept[:0], text[len(text)-vm.MaxOutput:]...)
		return
	}
	t.kept = append(t.kept, text...)
	// Cutting at twice the bound keeps the cost of many small texts linear.
	if len(t.kept) > 2*vm.MaxOutput {
		t.kept = append(t.kept[:0], t.kept[len(t.kept)-vm.MaxOutput:]...)
	}
}

// String returns what is kept, from a whole character on.
func (t *tail) String() string {
	return strings.ToValidUTF8(string(t.kept[max(0, len(t.kept)-vm.MaxOutput):]), "")
}
