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
	// maxCommand bounds commands: real ones are a few dozen bytes.
	maxCommand = 64 << 10
	// maxFrames bounds the frames of one message that are held: a Jupyter message has
	// six, and one more for each buffer.
	maxFrames = 4096
	// maxPassed bounds one frame that is read past. A larger one would not fit into
	// any kernel's memory: the peer does not speak ZMTP, and waiting for the end of
	// the frame would keep the socket deaf for ever.
	maxPassed = 1 << 40
)

// ErrFrameTooLarge means that a peer announced a frame that no kernel can hold.
var ErrFrameTooLarge = errors.New("frame is over the bound")

// errProtocol means that the peer does not speak ZMTP 3 as we do.
var errProtocol = errors.New("not ZMTP")

// frameReader reads the frames of one connection.
type frameReader struct {
	in    *bufio.Reader
	bound int64 // bytes of one message that are held
	pool  *framePool
	key   signer // verifies a message that is not held whole
}

func newFrameReader(r io.Reader, bound int64, pool *framePool, key signer) *frameReader {
	// Big frames pass the buffer by: bufio reads straight into what is larger.
	return &frameReader{in: bufio.NewReaderSize(r, 64<<10), bound: bound, pool: pool, key: key}
}

// message reads the next message. Commands between messages are skipped. Frames
// that don't fit the bound are read past, so that the connection and all that
// follows on it survive them: what is left of the message then says so.
func (r *frameReader) message() (wireMessage, error) {
	m := wireMessage{frames: make([][]byte, 0, 8)}
	room := r.bound
	for {
		flags, size, err := r.head()
		if err != nil {
			return m, err
		}
		if flags&flagCommand != 0 {
			if len(m.frames) > 0 {
				return m, fmt.Errorf("%w: a command inside a message", errProtocol)
			}
			if _, err := r.body(size, maxCommand); err != nil {
				return m, err
			}
			continue
		}
		if m.excess == nil && size <= uint64(room) && len(m.frames) < maxFrames {
			body, err := r.body(size, maxPassed)
			if err != nil {
				return m, err
			}
			m.frames = append(m.frames, body)
			room -= int64(size)
		} else if err := r.pass(&m, size); err != nil {
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

// pass reads past a frame that m has no room for.
func (r *frameReader) pass(m *wireMessage, size uint64) error {
	if size > maxPassed {
		return fmt.Errorf("%w: %d bytes", ErrFrameTooLarge, size)
	}
	if m.excess == nil {
		m.excess = newExcess(m.frames, r.key, int(min(tornBytes, r.bound/4)))
	}
	m.excess.frame()
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
		err = fmt.Errorf("%w: a message where a command belongs", errProtocol)
	}
	return body, err
}

// head reads what stands before a frame's body.
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

// body reads a frame's body of at most most bytes.
func (r *frameReader) body(size, most uint64) ([]byte, error) {
	if size > most {
		return nil, fmt.Errorf("%w: %d bytes where %d are allowed", ErrFrameTooLarge, size, most)
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

// unexpected tells an end inside a frame from one between two.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// appendFrame appends one frame as it goes over the wire.
func appendFrame(dst []byte, flags byte, body []byte) []byte {
	if len(body) <= 255 {
		dst = append(dst, flags, byte(len(body)))
	} else {
		dst = append(dst, flags|flagLong)
		dst = binary.BigEndian.AppendUint64(dst, uint64(len(body)))
	}
	return append(dst, body...)
}

// appendMessage appends all frames of one message.
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
