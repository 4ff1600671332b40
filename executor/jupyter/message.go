package jupyter

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
)

// ProtocolVersion is the version of the messaging specification in our headers
// (https://jupyter-client.readthedocs.io/en/stable/messaging.html).
const ProtocolVersion = "5.3"

const delimiter = "<IDS|MSG>"

var (
	errNoDelimiter = errors.New("no <IDS|MSG> delimiter")
	errShort       = errors.New("fewer parts than a message has")
	errSignature   = errors.New("wrong signature")
)

// Header is a message's header or its parent's.
type Header struct {
	MsgID    string `json:"msg_id"`
	MsgType  string `json:"msg_type"`
	Session  string `json:"session"`
	Username string `json:"username"`
	Date     string `json:"date"`
	Version  string `json:"version"`
}

// Message is one message from the kernel. Metadata, Content and Buffers stand
// in the bytes that came from the socket, uncopied.
type Message struct {
	Channel      Channel
	Header       Header
	ParentHeader Header
	Metadata     json.RawMessage
	Content      json.RawMessage
	Buffers      [][]byte

	// Dropped is what had to be left out just before this message, of the same parent.
	Dropped Dropped

	rawHeader []byte // as signed by the kernel: becomes the parent of our replies
	size      int64
}

// Dropped counts output messages that came faster than they were taken.
type Dropped struct{ Messages, Bytes int64 }

// signer makes and checks signatures. An empty key means none, and an empty frame.
type signer struct{ key []byte }

func (s signer) sign(parts [][]byte) []byte {
	if len(s.key) == 0 {
		return []byte{}
	}
	mac := hmac.New(sha256.New, s.key)
	for _, part := range parts {
		mac.Write(part)
	}
	return hex.AppendEncode(nil, mac.Sum(nil))
}

func (s signer) valid(signature []byte, parts [][]byte) bool {
	return len(s.key) == 0 || hmac.Equal(signature, s.sign(parts))
}

// build makes the frames of a message of ours and returns its id.
func build(sign signer, session, msgType string, parent []byte, content any) (frames [][]byte, id string, err error) {
	id = uuid.NewString()
	header, err := json.Marshal(Header{
		MsgID:    id,
		MsgType:  msgType,
		Session:  session,
		Username: "colab-relay",
		Date:     time.Now().UTC().Format(time.RFC3339Nano),
		Version:  ProtocolVersion,
	})
	if err != nil {
		return nil, "", err
	}
	body, err := json.Marshal(content)
	if err != nil {
		return nil, "", fmt.Errorf("encoding %s: %w", msgType, err)
	}
	if parent == nil {
		parent = []byte("{}")
	}
	parts := [][]byte{header, parent, []byte("{}"), body}
	return append([][]byte{[]byte(delimiter), sign.sign(parts)}, parts...), id, nil
}

// parse makes a message of frames. Only the headers are decoded.
func parse(sign signer, channel Channel, frames [][]byte) (*Message, error) {
	at := slices.IndexFunc(frames, func(f []byte) bool { return string(f) == delimiter })
	if at < 0 {
		return nil, errNoDelimiter
	}
	rest := frames[at+1:]
	if len(rest) < 5 {
		return nil, errShort
	}
	if !sign.valid(rest[0], rest[1:5]) {
		return nil, errSignature
	}
	m := &Message{Channel: channel, rawHeader: rest[1], Metadata: rest[3], Content: rest[4], Buffers: rest[5:]}
	if err := json.Unmarshal(rest[1], &m.Header); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	if err := json.Unmarshal(rest[2], &m.ParentHeader); err != nil && !bytes.Equal(rest[2], nil) {
		return nil, fmt.Errorf("parent header: %w", err)
	}
	for _, f := range frames {
		m.size += int64(len(f))
	}
	return m, nil
}
