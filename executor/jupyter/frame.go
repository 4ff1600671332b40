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
	// maxFrames bounds the frames of one message: a Jupyter message has six, and
	// one more for each buffer.
	maxFrames = 4096
)

// ErrFrameTooLarge means that a peer announced a message over Options.MaxFrame.
var ErrFrameTooLarge = errors.New("message is over the bound")

// errProtocol means that the peer does not speak ZMTP 3 as we do.
var errProtocol = errors.New("not ZMTP")

// frameReader reads the frames of one connection.
type frameReader struct {
	in    *bufio.Reader
	bound int64 // bytes of one message
	pool  *framePool
}

func newFrameReader(r io.Reader, bound int64, pool *framePool) *frameReader {
	// Big frames pass the buffer by: bufio reads straight into what is larger.
	return &frameReader{in: bufio.NewReaderSize(r, 64<<10), bound: bound, pool: pool}
}

// message reads the next message. Commands between messages are skipped.
func (r *frameReader) message() ([][]byte, error) {
	frames := make([][]byte, 0, 8)
	room := r.bound
	for {
		flags, body, err := r.frame(room)
		if err != nil {
			return nil, err
		}
		if flags&flagCommand != 0 {
			if len(frames) > 0 {
				return nil, fmt.Errorf("%w: a command inside a message", errProtocol)
			}
			continue
		}
		frames = append(frames, body)
		room -= int64(len(body))
		if flags&flagMore == 0 {
			return frames, nil
		}
		if len(frames) == maxFrames {
			return nil, fmt.Errorf("%w: more than %d frames", ErrFrameTooLarge, maxFrames)
		}
	}
}

// command reads a frame that must be a command.
func (r *frameReader) command() ([]byte, error) {
	flags, body, err := r.frame(maxCommand)
	if err == nil && flags&flagCommand == 0 {
		err = fmt.Errorf("%w: a message where a command belongs", errProtocol)
	}
	return body, err
}

// frame reads one frame of at most room bytes.
func (r *frameReader) frame(room int64) (flags byte, body []byte, err error) {
	if flags, err = r.in.ReadByte(); err != nil {
		return 0, nil, err
	}
	if flags&^(flagMore|flagLong|flagCommand) != 0 || flags&(flagCommand|flagMore) == flagCommand|flagMore {
		return 0, nil, fmt.Errorf("%w: frame flags %#x", errProtocol, flags)
	}
	size, err := r.size(flags)
	if err != nil {
		return 0, nil, unexpected(err)
	}
	if flags&flagCommand != 0 {
		room = maxCommand
	}
	if size > uint64(room) {
		return 0, nil, fmt.Errorf("%w: a frame of %d bytes where %d are left", ErrFrameTooLarge, size, room)
	}
	body = r.pool.get(int(size))
	if _, err := io.ReadFull(r.in, body); err != nil {
		return 0, nil, unexpected(err)
	}
	return flags, body, nil
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
