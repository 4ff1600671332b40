// Package bounded reads text from outside up to a bound, and fails when there is more:
// a text that was silently cut would be taken for the complete one.
package bounded

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
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

// ReadFile reads a file. It fails with ErrTooLong when that has over max bytes.
func ReadFile(path string, max int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadAll(f, max)
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
