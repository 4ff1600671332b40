// Package child opens tunnels by running a program that brings visitors to a listener on
// loopback: ssh, and cloudflared.
//
// It must not pass on secrets to the program: a program gets the variables that its own file
// names, and no others. Start reading at Tunnel.Run; ssh.go and cloudflared.go know one program
// each.
package child

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"colabrelay/executor/account"
	"colabrelay/executor/tunnel"
)

// endTimeout is how long a program may take to end. cloudflared would wait up to 30 s for responses
// that no client awaits any more.
const endTimeout = time.Second

// definition is what is known of one program.
type definition struct {
	name    string                        // of the program, on PATH
	install string                        // what to do without it
	passed  []string                      // variables that it gets
	args    func(address string) []string // that lead visitors to an address of this machine
	header  string                        // in which it reports visitors; empty if it does not
	reader  func() reader                 // of what one run prints
	check   func(ctx context.Context, t *Tunnel, path string) (found string, err error)
	// connectTimeout is how long the program may run without an open tunnel.
	connectTimeout time.Duration
}

// reader reads what one run of a program prints.
type reader interface {
	// read takes in a line and returns the URL at which visitors can come now, empty if they can't.
	read(line string) (url string)
	// explain says why a run ended with err. opened: visitors could come. A *tunnel.Refused
	// means that the program was denied the tunnel.
	explain(err error, opened bool) error
}

// Tunnel reaches the executor through a program.
type Tunnel struct {
	definition
	environ []string
	log     *slog.Logger
	retry   tunnel.Retry
}

func newTunnel(d definition, getenv func(string) string, log *slog.Logger) *Tunnel {
	log = tunnel.Logger(log)
	t := &Tunnel{definition: d, environ: []string{}, log: log, retry: tunnel.NewRetry(log)} // nil would pass on all variables
	for _, name := range d.passed {
		if value := getenv(name); value != "" {
			t.environ = append(t.environ, name+"="+value)
		}
	}
	return t
}

// find looks for the program on PATH.
func (t *Tunnel) find() (string, error) {
	path, err := exec.LookPath(t.name)
	if err != nil {
		return "", &tunnel.Refused{By: t.name, Explanation: "the program is not on PATH; " + t.install}
	}
	return path, nil
}

// ReportsVisitor implements tunnel.Tunnel.
func (t *Tunnel) ReportsVisitor() bool { return t.header != "" }

// Check implements tunnel.Tunnel.
func (t *Tunnel) Check(ctx context.Context) (string, error) {
	path, err := t.find()
	if err != nil {
		return "", err
	}
	return t.check(ctx, t, path)
}

// Run implements tunnel.Tunnel. It listens on one loopback port for the whole
// time, and starts the program again whenever it has ended.
func (t *Tunnel) Run(ctx context.Context, ready func(url string), serve func(net.Listener) error) error {
	path, err := t.find()
	if err != nil {
		return err
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen for %s: %v", t.name, err)
	}
	defer l.Close()
	programs, stop := context.WithCancel(ctx)
	defer stop()
	ran := tunnel.Start(func() error {
		return t.retry.Run(programs, ready, func(ctx context.Context, status *tunnel.Status) error {
			return t.runOnce(ctx, path, l.Addr().String(), func(url string) { status.Up(); status.URL(url) })
		})
	})
	served := tunnel.Serve(func() error { return serve(listener{l, t.header}) }, ran.Done, ctx.Done())
	stop()
	refused := ran.Err()
	l.Close()
	switch err := served.Err(); {
	case ctx.Err() != nil:
		return nil
	case refused != nil:
		return refused
	default:
		return fmt.Errorf("serve %s's connections: %v", t.name, err)
	}
}

// listener marks the connections of our own program.
type listener struct {
	net.Listener
	header string
}

// Accept implements net.Listener. The program sets the named header on each request, whatever the
// visitor sent. Only programs on this machine can connect here and write another address.
func (l listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &tunnel.Conn{Conn: conn, VisitorHeader: l.header}, nil
}

var (
	errUnconnected = errors.New("it had no open tunnel for too long")
	errEnded       = errors.New("it ended without being asked to") // its pid may belong to another process now
)

// runOnce runs the program until it has ended and its output was read. It ends the program when ctx
// ends or the program has no open tunnel for too long.
func (t *Tunnel) runOnce(ctx context.Context, path, address string, up func(url string)) error {
	cmd := exec.Command(path, t.args(address)...)
	cmd.Env = t.environ
	cmd.SysProcAttr = account.OwnSession() // the program would keep the public URL
	cmd.WaitDelay = endTimeout             // a child that it left behind may keep its output open
	input, open, err := os.Pipe()          // without an end, which would end ssh's session
	if err != nil {
		return err
	}
	defer open.Close()
	read, write := io.Pipe()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = input, write, write
	started := make(chan error, 1)
	ended := tunnel.Start(func() error {
		runtime.LockOSThread() // see account.OwnSession
		defer runtime.UnlockOSThread()
		defer write.Close()
		err := cmd.Start()
		input.Close()
		started <- err
		if err != nil {
			return err
		}
		return cmd.Wait()
	})
	if err := <-started; err != nil {
		return &tunnel.Refused{By: t.name, Explanation: fmt.Sprintf("the program can't be started: %v", err)}
	}
	lines := make(chan string)
	go readLines(read, lines)
	r := &run{reader: t.reader(), log: t.log.With("program", t.name), up: up, patience: t.connectTimeout}
	if err = r.watch(ctx, lines); !errors.Is(err, errEnded) {
		r.end(cmd, lines)
	}
	return r.explain(errors.Join(err, ended.Err()), r.opened)
}

// run is one run of the program.
type run struct {
	reader
	log      *slog.Logger
	up       func(url string)
	patience time.Duration
	url      string // at which visitors can come
	opened   bool   // they could
}

// watch reads the output until it ends or the program should be ended.
func (r *run) watch(ctx context.Context, lines <-chan string) error {
	unconnected := time.NewTimer(r.patience)
	defer unconnected.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-unconnected.C:
			return errUnconnected
		case line, more := <-lines:
			if !more {
				return errEnded
			}
			r.log.Debug("the tunnel's program", "line", line)
			before := r.url
			switch r.url = r.read(line); {
			case r.url == before:
			case r.url == "":
				unconnected.Reset(r.patience)
			default:
				unconnected.Stop()
				r.opened = true
				r.up(r.url)
			}
		}
	}
}

// end asks the program's process group to end, kills it if it does not, and reads
// the rest of its output.
func (r *run) end(cmd *exec.Cmd, lines <-chan string) {
	signal := func(sig syscall.Signal) {
		_ = syscall.Kill(-cmd.Process.Pid, sig) // the group may have ended
	}
	signal(syscall.SIGTERM)
	kill := time.AfterFunc(endTimeout, func() { signal(syscall.SIGKILL) })
	defer kill.Stop()
	for line := range lines {
		r.read(line)
	}
}

// maxLine bounds a line that a program prints. The rest of a longer line is
// read as the next one.
const maxLine = 16 << 10

// readLines sends each line that is not empty, until the output ends.
func readLines(from io.Reader, lines chan<- string) {
	defer close(lines)
	r := bufio.NewReaderSize(from, maxLine)
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
