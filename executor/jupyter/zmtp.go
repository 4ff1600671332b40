package jupyter

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// ZMTP 3.0 (https://rfc.zeromq.org/spec/23/), NULL mechanism, as a client.

const (
	socketDealer = "DEALER"
	socketSub    = "SUB"

	flagMore    = 0x01
	flagLong    = 0x02
	flagCommand = 0x04

	greetingSize = 64
	// maxCommand bounds READY and its kin; an honest one takes under 100 bytes.
	maxCommand = 8 << 10
	// maxFrames bounds the parts of one message; Jupyter uses 7 and buffers.
	maxFrames = 4096
)

var (
	errGreeting = errors.New("not a ZMTP 3 peer with the NULL mechanism")
	errFrame    = errors.New("malformed ZMTP frame")
	errTooLarge = errors.New("message over the frame bound")
)

// handshake exchanges greetings and READY commands.
func handshake(r *bufio.Reader, w io.Writer, socketType string, identity []byte) error {
	greeting := make([]byte, greetingSize)
	greeting[0], greeting[8], greeting[9], greeting[10] = 0xFF, 1, 0x7F, 3
	copy(greeting[12:], "NULL")
	if _, err := w.Write(greeting); err != nil {
		return err
	}
	peer := make([]byte, greetingSize)
	if _, err := io.ReadFull(r, peer); err != nil {
		return err
	}
	if peer[0] != 0xFF || peer[9]&1 != 1 || peer[10] < 3 || !bytes.Equal(peer[12:32], greeting[12:32]) {
		return errGreeting
	}
	if _, err := w.Write(readyCommand(socketType, identity)); err != nil {
		return err
	}
	flags, body, err := readFrame(r, maxCommand)
	if err != nil {
		return err
	}
	if flags&flagCommand == 0 || !bytes.HasPrefix(body, []byte("\x05READY")) {
		return fmt.Errorf("%w: no READY", errGreeting)
	}
	return nil
}

func readyCommand(socketType string, identity []byte) []byte {
	body := []byte("\x05READY")
	body = appendProperty(body, "Socket-Type", []byte(socketType))
	if len(identity) > 0 {
		body = appendProperty(body, "Identity", identity)
	}
	return appendFrame(nil, flagCommand, body)
}

func appendProperty(b []byte, name string, value []byte) []byte {
	b = append(b, byte(len(name)))
	b = append(b, name...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(value)))
	return append(b, value...)
}

// appendFrame appends one frame's header and body.
func appendFrame(b []byte, flags byte, body []byte) []byte {
	if len(body) > 255 {
		b = append(b, flags|flagLong)
		b = binary.BigEndian.AppendUint64(b, uint64(len(body)))
	} else {
		b = append(b, flags, byte(len(body)))
	}
	return append(b, body...)
}

// readFrame reads one frame whose body has at most limit bytes.
func readFrame(r *bufio.Reader, limit int64) (flags byte, body []byte, err error) {
	if flags, err = r.ReadByte(); err != nil {
		return 0, nil, err
	}
	if flags&^(flagMore|flagLong|flagCommand) != 0 || flags&flagCommand != 0 && flags&flagMore != 0 {
		return 0, nil, errFrame
	}
	size, err := readSize(r, flags&flagLong != 0)
	if err != nil {
		return 0, nil, err
	}
	if size > uint64(limit) {
		return 0, nil, fmt.Errorf("%w: %d bytes, at most %d", errTooLarge, size, limit)
	}
	body, err = readBody(r, int(size))
	return flags, body, err
}

func readSize(r *bufio.Reader, long bool) (uint64, error) {
	if !long {
		b, err := r.ReadByte()
		return uint64(b), unexpected(err)
	}
	var b [8]byte
	_, err := io.ReadFull(r, b[:])
	return binary.BigEndian.Uint64(b[:]), unexpected(err)
}

// readBody allocates as bytes come, not as a header promises.
func readBody(r *bufio.Reader, size int) ([]byte, error) {
	const step = 1 << 20
	if size <= step {
		body := make([]byte, size)
		_, err := io.ReadFull(r, body)
		return body, unexpected(err)
	}
	body := make([]byte, 0, step)
	for len(body) < size {
		if len(body) == cap(body) {
			grown := make([]byte, len(body), min(size, 4*cap(body)))
			copy(grown, body)
			body = grown
		}
		n := min(cap(body), size)
		if _, err := io.ReadFull(r, body[len(body):n]); err != nil {
			return nil, unexpected(err)
		}
		body = body[:n]
	}
	return body, nil
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// readMessage reads the frames of one message, limit bytes in all. Commands in
// between (PING and the like) are passed over.
func readMessage(r *bufio.Reader, limit int64) ([][]byte, error) {
	var frames [][]byte
	for {
		flags, body, err := readFrame(r, limit)
		if err != nil {
			return nil, err
		}
		if flags&flagCommand != 0 {
			continue
		}
		limit -= int64(len(body))
		frames = append(frames, body)
		if flags&flagMore == 0 {
			return frames, nil
		}
		if len(frames) == maxFrames {
			return nil, fmt.Errorf("%w: over %d frames", errTooLarge, maxFrames)
		}
	}
}

// encode is the wire form of one message.
func encode(frames [][]byte) []byte {
	size := 0
	for _, f := range frames {
		size += len(f) + 9
	}
	b := make([]byte, 0, size)
	for i, f := range frames {
		flags := byte(flagMore)
		if i == len(frames)-1 {
			flags = 0
		}
		b = appendFrame(b, flags, f)
	}
	return b
}
