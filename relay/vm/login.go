package vm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/natefinch/atomic"

	"colabrelay/shared/bounded"
)

const (
	loginName = "login.json"
	maxLogin  = 64 << 10 // bytes
)

// Login says that a person has read the rules and which backend starts VMs. It contains no
// credentials: each backend keeps its own.
type Login struct {
	Backend  string    `json:"backend"`
	Accepted time.Time `json:"accepted"` // when the person accepted Rules
}

// LoadLogin returns what SaveLogin stored in the folder, or ErrNotEnabled.
func LoadLogin(dir string) (Login, error) {
	var l Login
	text, err := bounded.ReadFile(filepath.Join(dir, loginName), maxLogin)
	if errors.Is(err, fs.ErrNotExist) {
		return l, ErrNotEnabled
	}
	if err == nil {
		err = json.Unmarshal(text, &l)
	}
	if err != nil || l.Backend == "" {
		return Login{}, fmt.Errorf("%w: %q cannot be read (%v)", ErrNotEnabled, filepath.Join(dir, loginName), err)
	}
	return l, nil
}

// SaveLogin stores a login, readable by this user only.
func SaveLogin(dir string, l Login) error {
	text, err := json.Marshal(l)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err == nil {
		err = atomic.WriteFile(filepath.Join(dir, loginName), bytes.NewReader(append(text, '\n')))
	}
	if err != nil {
		return fmt.Errorf("store which program starts VMs: %v", err)
	}
	return nil
}
