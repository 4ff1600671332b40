// Package bounded reads text from outside up to a bound, and fails when there is more:
// a text that was silently cut would be taken for the complete one. Depth measures JSON before its levels cost anything.
package bounded

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"syscall"
)

// ErrTooLong matches the error of a text that is longer than its bound. The error says
// what the bound is.
var ErrTooLong = errors.New("too long")

// TooLong returns ErrTooLong with the bound, which is max bytes.
func TooLong(max int64) error {
	if max >= 1<<20 && max%(1<<20) == 0 {
		return fmt.Errorf("%w: over %d MiB", ErrTooLong, max>>20)
	}
	return fmt.Errorf("%w: over %d bytes", ErrTooLong, max)
}

// ReadAll reads r to its end. It fails with ErrTooLong when that is over max bytes.
func ReadAll(r io.Reader, max int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, max+1))
	if err != nil {
		return nil, err
	}
	if int64(len(text)) > max {
		return nil, TooLong(max)
	}
	return text, nil
}

// ErrNotFile means that a path does not name a regular file. Reading a pipe could wait for
// ever, and a device may have no end.
var ErrNotFile = errors.New("not a regular file")

// Open opens a regular file, or a link to one, for reading. It never waits; any other kind of
// file is an ErrNotFile.
func Open(path string) (*os.File, error) { return OpenFile(path, os.O_RDONLY) }

// OpenFile is Open with these flags of os.OpenFile; a file that they create is for this user
// only. It checks the file before it opens it, because opening a device can act on it, and
// again afterwards, because another file may have taken the name.
func OpenFile(path string, flag int) (*os.File, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%q: %w", path, ErrNotFile)
	}
	f, err := os.OpenFile(path, flag|syscall.O_NONBLOCK, 0o600) // else a pipe waits for its other end
	if errors.Is(err, syscall.ELOOP) {
		return nil, fmt.Errorf("%q: %w but a link to itself", path, ErrNotFile)
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%q: %w", path, ErrNotFile)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// ReadFile reads a regular file. It fails with ErrNotFile for any other, and with ErrTooLong
// for one of over max bytes.
func ReadFile(path string, max int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > max { // not read: it may be huge
		return nil, TooLong(max)
	}
	return ReadAll(f, max)
}

// ReadInput reads a file that a person names in a command. Unlike ReadFile it also reads a pipe,
// such as that of the shell's <(command), and waits for it. It fails with ErrTooLong for a file
// of over max bytes.
func ReadInput(path string, max int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := ReadAll(f, max)
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", path, err)
	}
	return text, nil
}

// ReadLine returns the next line with its line break, and how many bytes it has. A line of
// over max bytes is skipped: its text is nil. At the end of r, the text may lack its line
// break, and err is io.EOF.
func ReadLine(r *bufio.Reader, max int) (text []byte, size int64, err error) {
	for {
		part, err := r.ReadSlice('\n')
		if size += int64(len(part)); size <= int64(max) {
			text = append(text, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if size > int64(max) {
			text = nil
		}
		return text, size, err
	}
}

// Buffer collects what is written to it. A write past Max bytes fails with ErrTooLong
// and adds nothing.
type Buffer struct {
	Max int64
	buf bytes.Buffer
}

// Write implements io.Writer.
func (b *Buffer) Write(p []byte) (int, error) {
	if int64(b.buf.Len())+int64(len(p)) > b.Max {
		return 0, TooLong(b.Max)
	}
	return b.buf.Write(p)
}

// Bytes returns what was written.
func (b *Buffer) Bytes() []byte { return b.buf.Bytes() }

// Tail keeps the last Max bytes that are written to it.
type Tail struct {
	Max  int
	kept []byte
	size int64
}

// Write implements io.Writer. It never fails.
func (t *Tail) Write(p []byte) (int, error) {
	t.size += int64(len(p))
	t.kept = append(t.kept, p[max(0, len(p)-t.Max):]...)
	if len(t.kept) > 2*t.Max { // rarely, so that each byte is copied once on average
		t.kept = append(t.kept[:0], t.kept[len(t.kept)-t.Max:]...)
	}
	return len(p), nil
}

// String returns what is kept, which may begin inside a character.
func (t *Tail) String() string { return string(t.kept[max(0, len(t.kept)-t.Max):]) }

// Dropped reports whether more was written than is kept.
func (t *Tail) Dropped() bool { return t.size > int64(t.Max) }

// Structure yields the brackets, braces and commas of a JSON text that stand outside its strings.
func Structure(raw []byte) iter.Seq[byte] {
	return func(yield func(byte) bool) {
		quoted := false
		for i := 0; i < len(raw); i++ {
			switch b := raw[i]; {
			case quoted && b == '\\':
				i++
			case b == '"':
				quoted = !quoted
			case quoted:
			case b == '{', b == '[', b == '}', b == ']', b == ',':
				if !yield(b) {
					return
				}
			}
		}
	}
}

// Depth returns how deep the arrays and objects of a JSON text are nested.
func Depth(raw []byte) (deepest int) {
	level := 0
	for b := range Structure(raw) {
		switch b {
		case '{', '[':
			level++
			deepest = max(deepest, level)
		case '}', ']':
			level--
		}
	}
	return deepest
}

// Items returns how many items the largest array or object of a JSON text has.
func Items(raw []byte) (most int) {
	var open []int // items of each open array or object
	for b := range Structure(raw) {
		switch last := len(open) - 1; {
		case b == '{' || b == '[':
			open = append(open, 1)
		case last < 0:
		case b == ',':
			open[last]++
		default:
			most = max(most, open[last])
			open = open[:last]
		}
	}
	return most
}
