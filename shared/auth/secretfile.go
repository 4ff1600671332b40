package auth

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"colabrelay/shared/bounded"
)

// maxSecretFile is the maximum size of a secret file, because a wrong path may name any
// file. A secret with the newlines after it is much shorter.
const maxSecretFile = 2 * maxSecretBytes

// ErrNotFile means that a path does not name a regular file. Reading a pipe could wait for
// ever, and a device may have no end.
var ErrNotFile = errors.New("not a regular file; write the secret to a regular file")

// ReadSecretFile reads a secret from a file. Its errors name the path and wrap those of
// NewSecret and the file system.
func ReadSecretFile(path string) (Secret, error) {
	text, err := readSmallFile(path)
	if err != nil {
		return Secret{}, err
	}
	secret, err := NewSecret(string(text))
	if err != nil {
		return Secret{}, fmt.Errorf("%q: %w", path, err)
	}
	return secret, nil
}

// readSmallFile checks the file before it opens it, because opening a device can act on it,
// and again afterwards, because another file may have taken the name. O_NONBLOCK keeps the
// opening of a pipe from waiting for a writer.
func readSmallFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%q: %w", path, ErrNotFile)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%q: %w", path, ErrNotFile)
	}
	text, err := bounded.ReadAll(f, maxSecretFile)
	if errors.Is(err, bounded.ErrTooLong) {
		return nil, fmt.Errorf("%q does not contain a secret: %w", path, err)
	}
	return text, err
}
