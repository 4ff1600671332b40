package jupyter

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Flags of a ZMTP frame (ZMTP 3.0, "Framing").
const (
	flagMore    = 1 << 0
	flagLong    = 1 << 1 // the length has eight bytes instead of one
	flagCommand = 1 << 2
)

const (
	// maxCommand bounds a command, in bytes. Real ones have a few dozen.
	maxCommand = 64 << 10
	// maxFrames bounds the frames of one message that are held. A Jupyter message has six,
	// a topic or identity before them, and one for each buffer, which nobody uses.
	maxFrames = 64
	// maxPassed bounds a frame that is discarded. A larger one does not fit into any
	// kernel's memory: the peer does not speak ZMTP, and waiting for the end of the
	// frame would block the socket for ever.
	maxPassed = 1 << 40
)

// errFrameTooLarge means that a peer announced a frame that no kernel can hold.
var errFrameTooLarge = errors.New("frame is over the bound")

// errProtocol means that the peer does not speak ZMTP 3 with the NULL mechanism.
var errProtocol = errors.New("not ZMTP")

// frameReader reads the frames of one connection.
type frameReader struct {
	in    *bufio.Reader
	bound int64 // bytes of one message that are held
	torn  int64 // bytes of each end of a stream over the bound that are held
	pool  *framePool
	key   signer // for messages that are not held completely
}

func newFrameReader(r io.Reader, bound int64, pool *framePool, key signer) *frameReader {
	// Big frames bypass the buffer: bufio reads directly into a larger slice.
	return &frameReader{in: bufio.NewReaderSize(r, 64<<10), bound: bound, torn: min(tornBytes, bound/4), pool: pool, key: key}
}

// message reads the next message. It skips commands between messages. Frames over the
// bound are discarded, so that the connection remains usable; the message then has an
// excess.
func (r *frameReader) message() (wireMessage, error) {
	m := wireMessage{frames: make([][]byte, 0, 8)}
	for {
		flags, size, err := r.head()
		if err != nil {
			return m, err
		}
		if flags&flagCommand != 0 {
			if err := r.skipCommand(m, size); err != nil {
				return m, err
			}
			continue
		}
		if m.excess == nil && r.hold(&m, size) {
			body, err := r.body(size, maxPassed)
			if err != nil {
				return m, err
			}
			m.frames = append(m.frames, body)
		} else if err := r.discard(&m, size); err != nil {
			return m, err
		}
		if flags&flagMore == 0 {
			if m.excess != nil {
				m.excess.end()
			}
			return m, nil
		}
	}
}

// hold reports whether m may hold another frame, whose size was announced, and counts it.
func (r *frameReader) hold(m *wireMessage, size uint64) bool {
	if size > uint64(r.bound-m.size) || len(m.frames) >= maxFrames {
		return false
	}
	if held := m.size + int64(size); held > unshared {
		if !r.pool.take(held - m.taken) {
			return false
		}
		m.taken = held
	}
	m.size += int64(size)
	return true
}

func (r *frameReader) skipCommand(m wireMessage, size uint64) error {
	if len(m.frames) > 0 || m.excess != nil {
		return fmt.Errorf("%w: a command inside a message", errProtocol)
	}
	if size > maxCommand {
		return fmt.Errorf("%w: a command of %d bytes, at most %d are allowed", errFrameTooLarge, size, maxCommand)
	}
	_, err := r.in.Discard(int(size))
	return unexpected(err)
}

// discard reads a frame that m has no room for.
func (r *frameReader) discard(m *wireMessage, size uint64) error {
	if size > maxPassed {
		return fmt.Errorf("%w: %d bytes", errFrameTooLarge, size)
	}
	if m.excess == nil {
		m.excess = newExcess(m.frames, r.key, int(r.torn))
	}
	m.excess.at++
	_, err := io.CopyN(m.excess, r.in, int64(size))
	return unexpected(err)
}

// command reads a frame that must be a command.
func (r *frameReader) command() ([]byte, error) {
	flags, size, err := r.head()
	if err != nil {
		return nil, err
	}
	body, err := r.body(size, maxCommand)
	if err == nil && flags&flagCommand == 0 {
		err = fmt.Errorf("%w: a message instead of a command", errProtocol)
	}
	return body, err
}

// head reads what precedes a frame's body.
func (r *frameReader) head() (flags byte, size uint64, err error) {
	if flags, err = r.in.ReadByte(); err != nil {
		return 0, 0, err
	}
	if flags&^(flagMore|flagLong|flagCommand) != 0 || flags&(flagCommand|flagMore) == flagCommand|flagMore {
		return 0, 0, fmt.Errorf("%w: frame flags %#x", errProtocol, flags)
	}
	size, err = r.size(flags)
	return flags, size, unexpected(err)
}

// body reads a frame's body, of at most limit bytes.
func (r *frameReader) body(size, limit uint64) ([]byte, error) {
	if size > limit {
		return nil, fmt.Errorf("%w: %d bytes, at most %d are allowed", errFrameTooLarge, size, limit)
	}
	body := r.pool.get(int(size))
	_, err := io.ReadFull(r.in, body)
	return body, unexpected(err)
}

func (r *frameReader) size(flags byte) (uint64, error) {
	if flags&flagLong == 0 {
		b, err := r.in.ReadByte()
		return uint64(b), err
	}
	var long [8]byte
	_, err := io.ReadFull(r.in, long[:])
	return binary.BigEndian.Uint64(long[:]), err
}

// unexpected distinguishes an end inside a frame from one between two frames.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// appendFrame appends the wire form of a frame.
func appendFrame(dst []byte, flags byte, body []byte) []byte {
	if len(body) <= 255 {
		dst = append(dst, flags, byte(len(body)))
	} else {
		dst = append(dst, flags|flagLong)
		dst = binary.BigEndian.AppendUint64(dst, uint64(len(body)))
	}
	return append(dst, body...)
}

// appendMessage appends the wire form of a message.
func appendMessage(dst []byte, frames ...[]byte) []byte {
	for i, frame := range frames {
		flags := byte(flagMore)
		if i == len(frames)-1 {
			flags = 0
		}
		dst = appendFrame(dst, flags, frame)
	}
	return dst
}
