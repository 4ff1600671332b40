package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"colabrelay/shared/e2e/harness"
)

// laptop is a computer with an MCP host, its relay, and the files of both.
type laptop struct {
	number int
	dir    string
	config harness.HostConfig

	mu    sync.RWMutex // held for writing while the relay is not running
	host  *harness.Host
	began harness.Process // the relay, before it was used
	ended []*harness.Host
}

func newLaptop(ctx context.Context, w *world, number int) (*laptop, error) {
	dir := filepath.Join(w.dir, fmt.Sprint("laptop", number))
	temp := filepath.Join(dir, "temp")
	if err := errors.Join(w.disks.add(dir), os.MkdirAll(temp, 0o700)); err != nil {
		return nil, err
	}
	l := &laptop{number: number, dir: dir, config: harness.HostConfig{Binary: w.binary.Relay, Dir: dir, Env: []string{
		"COLAB_URL=http://" + w.network.address, "COLAB_SECRET=" + secret, "RELAY_HOLD=3s", "RELAY_TOOLSETS=all",
		"LOCAL_SAVE_DIR=" + dir + "/saved", "CHECKPOINT_DIR=" + dir + "/checkpoints", "TMPDIR=" + temp,
	}}}
	return l, l.start(ctx)
}

func (l *laptop) start(ctx context.Context) (err error) {
	if l.host, err = harness.StartHost(ctx, l.config); err != nil {
		return err
	}
	l.began, err = harness.ProcessOf(l.host.PID())
	return err
}

// current returns the host. It waits while the relay is started again.
func (l *laptop) current() *harness.Host {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.host
}

// replace ends the relay with end and starts another one.
func (l *laptop) replace(ctx context.Context, end func(*harness.Host)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	end(l.host)
	l.ended = append(l.ended, l.host)
	if err := l.start(ctx); err != nil {
		return fmt.Errorf("starting relay %d again: %w", l.number, err)
	}
	return nil
}

// close ends the relay and writes down what all relays of this laptop logged.
func (l *laptop) close() error {
	errs := []error{l.host.Close()}
	for n, h := range append(l.ended, l.host) {
		path := filepath.Join(l.dir, fmt.Sprintf("relay%d.log", n))
		errs = append(errs, os.WriteFile(path, []byte(h.Stderr.String()), 0o600))
	}
	return errors.Join(errs...)
}
