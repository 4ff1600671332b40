package sshhost

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"

	"colabrelay/relay/plain"
	"colabrelay/relay/vm"
)

//go:embed serve.py
var serveSource string

const (
	// maxLine bounds a line of the machine's answers, in bytes; maxNoise what its shell prints
	// before the first one.
	maxLine  = 64 << 10
	maxNoise = 1 << 20
	// callLimit bounds a call, unless it uploads: poll waits 10 s, an executor may need 20 s to end.
	callLimit = 2 * time.Minute
	// endTime is how long an ssh that has ended may leave its output open: a master of shared
	// connections (ControlPersist) keeps it. A machine that goes on talking is left then.
	endTime = 2 * time.Second
)

// loader reads the source of a program from stdin and runs it. It is an argument, so it
// contains no secret.
const loader = `'import sys;i=sys.stdin.buffer;exec(compile(i.read(int(i.readline())),"colab_relay","exec"))'`

// preface is the program that loader runs. It also runs on old Pythons.
const preface = `import json, sys
if sys.version_info < (3, 8):
    print("\n" + %[1]s + json.dumps({"error": "%%d.%%d" %% sys.version_info[:2], "name": "old"}))
    sys.exit()
import types
module = types.ModuleType("colab_relay_launch")
exec(compile(%[2]s, "colab_relay_launch", "exec"), module.__dict__)
sys.modules["colab_relay_launch"] = module
functions = {"__name__": "colab_relay_serve"}
exec(compile(%[3]s, "colab_relay_serve", "exec"), functions)
functions["MARKER"] = %[1]s
functions["serve"]()
`

// remoteError is an error of serve.py. Name is that of the error number, such as ENOSPC.
type remoteError struct{ Name, Text string }

func (e *remoteError) Error() string { return e.Text }

// session is serve.py on the machine, over one run of ssh.
type session struct {
	host   string
	python string
	uname  string // the command with which a person tries the machine
	cmd    *exec.Cmd
	stop   context.CancelFunc // kills ssh
	in     io.WriteCloser
	out    *bufio.Reader
	errs   *lines
	marker string
	system string // what uname printed; empty without an answer
}

// open logs in and starts serve.py. A caller must close the session.
func (h *Host) open(ctx context.Context) (*session, error) {
	s := &session{host: h.cfg.Address, python: h.cfg.Python, uname: h.byHand("uname"), marker: "colab-relay-" + rand.Text() + " ", errs: &lines{show: h.cfg.Say}}
	word := strings.TrimSpace(s.marker)
	command := "echo " + word + "; uname -sm; exec " + shellWord(s.python) + " -c " + loader
	running, stop := context.WithCancel(ctx)
	s.stop = stop
	s.cmd = h.ssh(running, []string{"-T", "-o", "ClearAllForwardings=yes"}, command)
	s.cmd.Stderr = s.errs
	var err error
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		stop()
		return nil, err
	}
	stdout, err := s.cmd.StdoutPipe()
	if err == nil {
		s.out = bufio.NewReaderSize(stdout, maxLine)
		err = s.cmd.Start()
	}
	if err != nil {
		stop()
		return nil, fmt.Errorf("start ssh: %w", err)
	}
	if err := s.greet(word); err != nil {
		return nil, s.ended(ctx, err)
	}
	source := fmt.Sprintf(preface, vm.PythonString(s.marker), vm.PythonString(vm.LaunchSource), vm.PythonString(serveSource))
	if _, err := fmt.Fprintf(s.in, "%d\n%s", len(source), source); err != nil {
		return nil, s.ended(ctx, err)
	}
	return s, nil
}

// errShell: the machine's shell did not answer as expected.
var errShell = errors.New("no answer of a shell")

// greet reads what the machine is, after whatever its shell prints before.
func (s *session) greet(word string) error {
	for read := 0; read < maxNoise; {
		line, err := s.line()
		if err != nil {
			return err
		}
		if line == word {
			s.system, err = s.line()
			return err
		}
		read += len(line) + 1
	}
	return errShell
}

// line reads a line; a longer one than maxLine is an error.
func (s *session) line() (string, error) {
	line, err := s.out.ReadSlice('\n')
	return strings.TrimRight(string(line), "\r\n"), err
}

// call calls a function of serve.py; content follows the request.
func (s *session) call(ctx context.Context, report any, content []byte, function string, arguments ...any) error {
	request, err := json.Marshal([]any{function, arguments})
	if err != nil {
		return err
	}
	if content == nil {
		late := time.AfterFunc(callLimit, s.stop)
		defer late.Stop()
	}
	_, unsent := s.in.Write(append(request, '\n')) // if serve.py has ended, its answer says why
	if unsent == nil {
		_, unsent = io.Copy(s.in, bytes.NewReader(content))
	}
	for read := 0; read < maxNoise; {
		line, err := s.line()
		if err != nil {
			return s.ended(ctx, errors.Join(err, unsent))
		}
		read += len(line) + 1
		text, found := strings.CutPrefix(line, s.marker)
		if !found {
			continue
		}
		var answer struct {
			Report      json.RawMessage
			Error, Name string
		}
		if err := json.Unmarshal([]byte(text), &answer); err != nil {
			return fmt.Errorf("%s on %s: its answer is not as expected", function, s.host)
		}
		if answer.Error != "" {
			return &remoteError{answer.Name, plain.Line(answer.Error)}
		}
		return json.Unmarshal(answer.Report, report)
	}
	return fmt.Errorf("%s on %s: its answer is not as expected", function, s.host)
}

// ended waits for the end of ssh, and says why there was no answer.
func (s *session) ended(ctx context.Context, cause error) error {
	s.close()
	code := s.cmd.ProcessState.ExitCode()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case code == 255 && s.system == "": // ssh's own error
		return &LoginError{s.host, s.errs.last()}
	case s.system == "":
		return fmt.Errorf("%s did not answer as a Linux machine does: `%s` must print Linux", s.host, s.uname)
	case !strings.HasPrefix(s.system, "Linux "):
		return fmt.Errorf("%s is no Linux machine (uname prints %q), and the executor runs on Linux only", s.host, plain.Line(s.system))
	case code == 127 || code == 126:
		return fmt.Errorf("%s has no Python %q: install one (on Debian and Ubuntu: `sudo apt install python3-venv`), or name an interpreter of that machine with --python PATH", s.host, s.python)
	case code == 255:
		return &LoginError{s.host, s.errs.last()}
	}
	return fmt.Errorf("the session on %s ended early (exit status %d): %w; its last words: %s", s.host, code, cause, s.errs.last())
}

// close ends the session; serve.py ends with its stdin.
func (s *session) close() {
	s.in.Close()
	late := time.AfterFunc(endTime, s.stop)
	defer late.Stop()
	defer s.stop()
	_, _ = io.Copy(io.Discard, s.out) // until the end of ssh
	_ = s.cmd.Wait()
	s.errs.flush()
}

// shellWord quotes a path for the machine's shell, and leaves a leading ~/ to that shell.
func shellWord(path string) string {
	home := ""
	if rest, found := strings.CutPrefix(path, "~/"); found {
		home, path = "~/", rest
	}
	return home + "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

// lines passes on each line that ssh writes to stderr, made safe for a terminal, and remembers
// the last one.
type lines struct {
	show func(string) // nil: none

	mu      sync.Mutex
	part    []byte
	newest  string
	written int
}

// maxShown bounds what is shown of one run of ssh, in bytes.
const maxShown = 64 << 10

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.part = append(l.part, p...)
	for {
		line, rest, found := bytes.Cut(l.part, []byte("\n"))
		if !found {
			break
		}
		l.add(line)
		l.part = rest
	}
	if len(l.part) > maxLine {
		l.add(l.part)
		l.part = nil
	}
	return len(p), nil
}

func (l *lines) add(line []byte) {
	text := plain.Line(strings.TrimSpace(string(line)))
	if text == "" {
		return
	}
	l.newest = text
	if l.written += len(text); l.show != nil && l.written <= maxShown {
		l.show(text)
	}
}

// flush shows a last line without an end.
func (l *lines) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.add(l.part)
	l.part = nil
}

func (l *lines) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.newest == "" {
		return "none"
	}
	return l.newest
}
