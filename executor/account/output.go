package account

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
)

// maxOutput bounds what Output returns: packages may run code in a script of the executor,
// and must not fill its memory.
const maxOutput = 16 << 20

// ErrOutput means that a program wrote more than Output returns.
var ErrOutput = fmt.Errorf("it wrote more than %d bytes", maxOutput)

// Output runs a program with the rights of u, as Start does, and returns what it wrote to
// stdout. What it wrote to stderr is in the *exec.ExitError, up to 64 KiB.
func (u *User) Output(cmd *exec.Cmd) ([]byte, error) {
	out, errs := &limited{left: maxOutput}, &limited{left: 64 << 10}
	cmd.Stdout, cmd.Stderr = out, errs
	started := make(chan error)
	go func() {
		if u != nil {
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		}
		started <- u.start(cmd, u.mark(scriptMark))
	}()
	err := <-started
	if err == nil {
		err = cmd.Wait()
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		exit.Stderr = errs.kept.Bytes()
	}
	if err == nil && out.over {
		err = ErrOutput
	}
	return out.kept.Bytes(), err
}

// limited keeps the first bytes that are written to it.
type limited struct {
	kept bytes.Buffer
	left int
	over bool
}

func (l *limited) Write(p []byte) (int, error) {
	kept := p[:min(len(p), l.left)]
	l.left -= len(kept)
	l.over = l.over || len(kept) < len(p)
	l.kept.Write(kept)
	return len(p), nil
}
