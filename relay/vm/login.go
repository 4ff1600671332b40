package vm

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"colabrelay/shared/keep"
)

// Login says that a person has read the rules and which backend starts VMs. It contains no
// credentials: each backend keeps its own.
type Login struct {
	Backend  string    `json:"backend"`
	Accepted time.Time `json:"accepted"` // when the person accepted Rules
}

func loginFile(dir string) keep.File[Login] {
	return keep.File[Login]{Path: filepath.Join(dir, "login.json"), What: "the record of the program that starts VMs", Max: 64 << 10, Check: (*Login).check}
}

func (l *Login) check() error {
	if l.Backend == "" {
		return errors.New("it names no program")
	}
	return nil
}

// LoadLogin returns what SaveLogin stored in the folder, or ErrNotEnabled.
func LoadLogin(dir string) (Login, error) {
	l, err := loginFile(dir).Read()
	switch {
	case err != nil:
		return Login{}, fmt.Errorf("%w: %w", ErrNotEnabled, err)
	case l.Backend == "":
		return Login{}, ErrNotEnabled
	}
	return l, nil
}

// SaveLogin stores a login, readable by this user only. A damaged one is kept under another name.
func SaveLogin(dir string, l Login) error {
	_, err := loginFile(dir).Change(func(kept *Login) error {
		*kept = l
		return nil
	})
	return err
}
