package cloudflared

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"colabrelay/executor/tunnel"
)

// process is one run of the cloudflared program.
type process struct {
	connectTimeout time.Duration // how long it may be without a connection
	log            logReader
	started        bool // set by run
}

var (
	errUnconnected = errors.New("it had no connection to Cloudflare for too long")
	errEnded       = errors.New("it ended without being asked to") // its pid may belong to another process now
)

// run starts the program and blocks until it has ended and its output was read.
// It ends the program when ctx ends or the program is unconnected for too long.
func (p *process) run(ctx context.Context, cmd *exec.Cmd) error {
	read, write := io.Pipe()
	cmd.Stdout, cmd.Stderr = write, write
	started := make(chan error, 1)
	ended := tunnel.Start(func() error {
		// Linux sends Pdeathsig when the thread that forked ends, not the process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer write.Close()
		err := cmd.Start()
		started <- err
		if err != nil {
			return err
		}
		return cmd.Wait()
	})
	if err := <-started; err != nil {
		return err
	}
	p.started = true
	lines := make(chan string)
	go readLines(read, lines)
	err := p.watch(ctx, lines)
	if !errors.Is(err, errEnded) {
		p.end(cmd, lines)
	}
	return errors.Join(err, ended.Err())
}

// watch reads the output until it ends or the program should be ended.
func (p *process) watch(ctx context.Context, lines <-chan string) error {
	unconnected := time.NewTimer(p.connectTimeout)
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
			switch p.log.read(line) {
			case connected:
				unconnected.Stop()
			case disconnected:
				unconnected.Reset(p.connectTimeout)
			}
		}
	}
}

// end asks the program's process group to end, kills it if it does not, and reads
// the rest of its output.
func (p *process) end(cmd *exec.Cmd, lines <-chan string) {
	signal := func(sig syscall.Signal) {
		_ = syscall.Kill(-cmd.Process.Pid, sig) // the group may have ended
	}
	signal(syscall.SIGTERM)
	kill := time.AfterFunc(endTimeout, func() { signal(syscall.SIGKILL) })
	defer kill.Stop()
	for line := range lines {
		p.log.read(line)
	}
}
