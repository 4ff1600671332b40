package tunnel

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// maxLogLine bounds a line that cloudflared prints; the rest of a longer one is
// read as another.
const maxLogLine = 16 << 10

// quickTunnel is one life of the cloudflared program.
type quickTunnel struct {
	tell func(url string) // called once the URL leads here
	up   time.Duration    // how long it may be without a connection
	log  *slog.Logger

	// What came of it; for the goroutine that called run.
	started    bool
	registered bool   // it has been connected
	url        string // as printed
	said       string // the last fault it printed, or its last line
}

var (
	errUnconnected = errors.New("it had no connection to Cloudflare for too long")
	errEnded       = errors.New("it ended by itself") // its pid may be another's now
)

// run starts the program and blocks until it has ended and its output was read.
// When ctx ends, or it has no connection for too long, the program is ended.
func (q *quickTunnel) run(ctx context.Context, cmd *exec.Cmd) error {
	read, write := io.Pipe()
	cmd.Stdout, cmd.Stderr = write, write
	ready := make(chan error, 1)
	done := make(chan error, 1)
	go func() {
		// Linux sends Pdeathsig when the thread that forked ends, not the process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		ready <- err
		if err == nil {
			err = cmd.Wait()
		}
		write.Close()
		done <- err
	}()
	if err := <-ready; err != nil {
		return err
	}
	q.started = true
	lines := make(chan string)
	go readLines(read, lines)
	err := q.watch(ctx, lines)
	if !errors.Is(err, errEnded) {
		q.end(cmd, lines)
	}
	return errors.Join(err, <-done)
}

// watch follows the output until it ends, or the program should.
func (q *quickTunnel) watch(ctx context.Context, lines <-chan string) error {
	unconnected := time.NewTimer(q.up)
	defer unconnected.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-unconnected.C:
			return errUnconnected
		case line, open := <-lines:
			if !open {
				return errEnded
			}
			switch q.read(line) {
			case connected:
				unconnected.Stop()
			case disconnected:
				unconnected.Reset(q.up)
			}
		}
	}
}

// end asks the program's group to end, then makes it, and reads what it still says.
func (q *quickTunnel) end(cmd *exec.Cmd, lines <-chan string) {
	_ = signalGroup(cmd.Process.Pid, syscall.SIGTERM) // it may have ended
	hard := time.AfterFunc(cloudflaredEnd, func() { _ = signalGroup(cmd.Process.Pid, syscall.SIGKILL) })
	defer hard.Stop()
	for line := range lines {
		q.read(line)
	}
}

// change is what a line says of the connection to Cloudflare.
type change int

const (
	unchanged change = iota
	connected
	disconnected
)

// The forms of cloudflared's lines: a date, three letters for the level, words.
// The URL stands in a box of its own; other lines may hold such URLs as well.
var (
	boxedURL     = regexp.MustCompile(`\|\s+(https://[a-z0-9][a-z0-9-]*\.trycloudflare\.com)\s+\|`)
	registered   = regexp.MustCompile(`\bINF (?:Registered tunnel connection|Connection \S+ registered)\b`)
	unregistered = regexp.MustCompile(`\b(?:Unregistered tunnel connection|Retrying connection in up to)\b`)
	faultLine    = regexp.MustCompile(`\b(?:ERR|FTL) |^failed |^[Ii]ncorrect Usage`)
	logDate      = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\S+ `)
)

// read takes one line in. The URL is told when there is a connection too: before
// that it answers with a fault of Cloudflare's.
func (q *quickTunnel) read(line string) change {
	q.log.Debug("cloudflared", "line", line)
	if fault := faultLine.MatchString(line); fault || !faultLine.MatchString(q.said) {
		q.said = logDate.ReplaceAllString(line, "")
	}
	if found := boxedURL.FindStringSubmatch(line); found != nil {
		q.url = found[1]
	}
	now := unchanged
	switch {
	case registered.MatchString(line):
		now, q.registered = connected, true
	case unregistered.MatchString(line):
		now = disconnected
	}
	if q.url != "" && q.registered {
		q.tell(q.url)
	}
	return now
}

// readLines sends each line until the output ends.
func readLines(from io.Reader, lines chan<- string) {
	defer close(lines)
	r := bufio.NewReaderSize(from, maxLogLine)
	for {
		line, err := r.ReadSlice('\n')
		if text := strings.TrimRight(string(line), "\r\n"); text != "" {
			lines <- text
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

// signalGroup signals a program and all it started.
func signalGroup(pid int, sig syscall.Signal) error {
	if err := syscall.Kill(-pid, sig); err != nil {
		return fmt.Errorf("signal process group %d: %v", pid, err)
	}
	return nil
}
