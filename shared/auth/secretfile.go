package auth

import (
	"errors"
	"fmt"

	"colabrelay/shared/bounded"
	"colabrelay/shared/filename"
)

// maxSecretFile is the maximum size of a secret file, because a wrong path may name any
// file. A secret with the newlines after it is much shorter.
const maxSecretFile = 2 * maxSecretBytes

// ErrNotFile means that a path does not name a regular file.
var ErrNotFile = errors.New("not a regular file; write the secret to a regular file")

// ReadSecretFile reads a secret from a file. Its errors name the path and wrap those of
// NewSecret and the file system.
func ReadSecretFile(path string) (Secret, error) {
	path, err := filename.Typed(path)
	if err != nil {
		return Secret{}, err
	}
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

func readSmallFile(path string) ([]byte, error) {
	text, err := bounded.ReadFile(path, maxSecretFile)
	switch {
	case errors.Is(err, bounded.ErrNotFile):
		return nil, fmt.Errorf("%q: %w", path, ErrNotFile)
	case errors.Is(err, bounded.ErrTooLong):
		return nil, fmt.Errorf("%q does not contain a secret: %w", path, err)
	}
	return text, err
}
