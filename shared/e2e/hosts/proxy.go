package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// proxyWord makes the command a proxy: hosts proxy LOG PROGRAM ARGS... runs the program, passes
// on its stdin and stdout, and writes each line of both to LOG.
const proxyWord = "proxy"

// entry is a line of the log.
type entry struct {
	Time time.Time
	From string // host or relay
	Line string
}

// recorder writes a log.
type recorder struct {
	mu  sync.Mutex
	out io.Writer
}

// proxy returns when the program has ended, with its exit code.
func proxy(args []string, stdin io.Reader, stdout io.Writer) (int, error) {
	if len(args) < 2 {
		return 2, errors.New("proxy: no log or no program is named")
	}
	log, err := os.OpenFile(args[0], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 1, err
	}
	defer log.Close()
	r := &recorder{out: log}
	cmd := exec.Command(args[1], args[2:]...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return 1, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 1, err
	}
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	go func() {
		_ = r.pass("host", stdin, in) // a relay that has ended reads no more
		_ = in.Close()
	}()
	copied := r.pass("relay", out, stdout)
	if copied != nil {
		_ = cmd.Process.Kill() // its answers would reach nobody
	}
	waited := cmd.Wait()
	var exit *exec.ExitError
	if errors.As(waited, &exit) && copied == nil {
		return exit.ExitCode(), nil
	}
	return 0, errors.Join(copied, waited)
}

// pass copies lines until the input ends.
func (r *recorder) pass(from string, in io.Reader, out io.Writer) error {
	for lines := bufio.NewReader(in); ; {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			if err := r.write(entry{time.Now(), from, string(bytes.TrimSuffix(line, []byte("\n")))}); err != nil {
				return err
			}
			if _, err := out.Write(line); err != nil {
				return err
			}
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

func (r *recorder) write(e entry) error {
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err = r.out.Write(append(data, '\n'))
	return err
}

// sent is a call that reached the relay, and its answer.
type sent struct {
	Tool     string
	Args     map[string]any
	Answered bool
	Failed   string // the error of the protocol, "" if there is none
	Texts    []string
	Images   []picture
	IsError  bool
	Ended    time.Time
}

// message is what a line may hold.
type message struct {
	ID     json.RawMessage
	Method string
	Params struct {
		Name      string
		Arguments map[string]any
	}
	Error  *struct{ Message string }
	Result *struct {
		IsError bool
		Content []struct{ Type, Text, Data, MIMEType string }
	}
}

// readLog returns the calls of a log in their order.
func readLog(path string) ([]*sent, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the host did not start the relay: %w", err)
	}
	var all []*sent
	byID := map[string]*sent{}
	for line := range bytes.Lines(data) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // it is being written
		}
		var e entry
		var m message
		if err := json.Unmarshal(line, &e); err != nil {
			return all, err
		}
		if err := json.Unmarshal([]byte(e.Line), &m); err != nil {
			return all, fmt.Errorf("the %s wrote %.200q: %w", e.From, e.Line, err)
		}
		key := string(m.ID)
		switch {
		case e.From == "host" && m.Method == "tools/call":
			byID[key] = &sent{Tool: m.Params.Name, Args: m.Params.Arguments}
			all = append(all, byID[key])
		case e.From == "relay" && m.Method == "" && byID[key] != nil:
			byID[key].answer(m, e.Time)
		}
	}
	return all, nil
}

func (s *sent) answer(m message, at time.Time) {
	s.Answered, s.Ended = true, at
	if m.Error != nil {
		s.Failed = m.Error.Message
	}
	if m.Result == nil {
		return
	}
	s.IsError = m.Result.IsError
	for _, c := range m.Result.Content {
		switch c.Type {
		case "text":
			s.Texts = append(s.Texts, c.Text)
		case "image":
			s.Images = append(s.Images, picture{c.MIMEType, c.Data})
		}
	}
}
