package pairing

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"colabrelay/shared/auth"
)

const secretName = "executor-secret"

// Secret is this laptop's own secret, made at the first call and kept for good:
// executors that are given it need no new pairing. path is where it is kept.
func (s *Store) Secret() (secret auth.Secret, path string, made bool, err error) {
	path = filepath.Join(s.dir, secretName)
	unlock, err := s.own()
	if err != nil {
		return auth.Secret{}, path, false, err
	}
	defer unlock()
	secret, err = readSecret(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return secret, path, false, err
	}
	secret = auth.GenerateSecret()
	if err := replace(path, strings.NewReader(secret.Reveal()+"\n")); err != nil {
		return auth.Secret{}, path, false, fmt.Errorf("keep the secret: %v", err)
	}
	return secret, path, true, nil
}

// KeptSecret is the laptop's own secret, or an error that wraps fs.ErrNotExist where
// none was made.
func (s *Store) KeptSecret() (auth.Secret, error) {
	return readSecret(filepath.Join(s.dir, secretName))
}

func readSecret(path string) (auth.Secret, error) {
	secret, err := auth.ReadSecretFile(path)
	if err != nil {
		return auth.Secret{}, fmt.Errorf("read the secret: %w", err)
	}
	return secret, nil
}
