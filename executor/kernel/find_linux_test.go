package kernel

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/executor/account"
	"colabrelay/shared/privileged"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

func TestAPythonThatTheUserCannotReachIsNamed(t *testing.T) {
	tier.Long(t)
	if !privileged.Run(t) {
		return
	}
	user, err := account.Find("nobody")
	if err != nil {
		t.Fatal(err)
	}
	closed := filepath.Join(t.TempDir(), "closed")
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	python := filepath.Join(closed, "python")
	if err := os.Symlink(stacks.Old(t).Python, python); err != nil {
		t.Fatal(err)
	}
	_, err = Find(t.Context(), user, python, os.Environ())
	if !errors.Is(err, ErrNoPython) || !strings.Contains(err.Error(), python+`: user "nobody" cannot run it`) {
		t.Errorf("error is %v", err)
	}
}
