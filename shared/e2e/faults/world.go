package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"colabrelay/relay/client"
	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/freeport"
)

// secret is a valid secret that protects nothing.
const secret = "the fault suite's secret, 32 bytes or more"

// world is one VM at a time with an executor at a fixed address, the network to it, and the
// laptops.
type world struct {
	dir     string
	disks   *disks
	binary  harness.Binaries
	network *network
	laptops []*laptop

	mu       sync.RWMutex // held for writing while the executor is not running
	vm       harness.ExecutorConfig
	vms      int             // VMs so far
	began    harness.Process // the first executor, before a relay used it
	executor *harness.Executor
}

// newWorld starts everything. With an error it returns what has been started.
func newWorld(ctx context.Context, o options, dir string, drives *disks) (*world, error) {
	w := &world{dir: dir, disks: drives, binary: o.binary}
	address, err := freeport.Address()
	if err != nil {
		return w, err
	}
	w.vm = harness.ExecutorConfig{Binary: o.binary.Executor, Python: o.python, Secret: secret, Listen: address}
	if err := w.emptyVM(); err != nil {
		return w, err
	}
	if err := w.start(ctx); err != nil {
		return w, err
	}
	if err := w.settle(ctx); err != nil {
		return w, err
	}
	if w.began, err = harness.ProcessOf(w.executor.PID()); err != nil {
		return w, err
	}
	if w.network, err = newNetwork(ctx, address); err != nil {
		return w, err
	}
	for number := range o.laptops {
		l, err := newLaptop(ctx, w, number)
		if err != nil {
			return w, err
		}
		w.laptops = append(w.laptops, l)
	}
	return w, nil
}

// emptyVM makes the disk and the folders of the next VM. The temporary folder lies outside the working
// directory, as /tmp does.
func (w *world) emptyVM() error {
	w.vms++
	root := filepath.Join(w.dir, fmt.Sprint("vm", w.vms))
	w.vm.Dir = filepath.Join(root, "content")
	w.vm.Env = []string{"TMPDIR=" + filepath.Join(root, "tmp"), "LEDGER=" + w.ledgerPath()}
	return errors.Join(w.disks.add(root), os.MkdirAll(w.vm.Dir, 0o700), os.MkdirAll(filepath.Join(root, "tmp"), 0o700))
}

// ledgerPath is the file in which everything that runs in a kernel leaves a line.
func (w *world) ledgerPath() string { return filepath.Join(w.dir, "ledger.txt") }

func (w *world) start(ctx context.Context) (err error) {
	w.executor, err = harness.StartExecutor(ctx, w.vm)
	return err
}

// replaceExecutor kills the executor and, after a while, starts another one. With newVM that
// one is on an empty VM.
func (w *world) replaceExecutor(ctx context.Context, down time.Duration, newVM bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.executor.Kill()
	pause(ctx, down)
	if newVM {
		if err := w.emptyVM(); err != nil {
			return err
		}
	}
	if err := w.start(ctx); err != nil {
		return fmt.Errorf("starting the executor again: %w", err)
	}
	return nil
}

// kernelPID returns the process id of the kernel, or an error if none runs.
func (w *world) kernelPID() (int, error) {
	var record struct{ PID int }
	data, err := os.ReadFile(filepath.Join(w.folder(), ".colab-relay", "kernel.json"))
	if err == nil {
		err = json.Unmarshal(data, &record)
	}
	if err == nil && record.PID <= 1 {
		err = errors.New("no kernel is recorded")
	}
	return record.PID, err
}

// executorPID returns the process id of the executor.
func (w *world) executorPID() (int, error) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.executor.PID(), nil
}

// folder returns the working directory of the VM.
func (w *world) folder() string {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.vm.Dir
}

// direct returns a client that does not pass the network.
func (w *world) direct() (*client.Client, error) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	key, err := auth.NewSecret(secret)
	if err != nil {
		return nil, err
	}
	return client.New(client.Config{BaseURL: w.executor.Ready.LocalURL, Secret: key})
}

// settleTime is the most that the VM may take to run code again; a kernel starts slowly on a
// busy machine.
const settleTime = 3 * time.Minute

// settle returns when the VM runs code again, after all faults are mended.
func (w *world) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	c, err := w.direct()
	if err != nil {
		return err
	}
	defer c.Close()
	for {
		x, err := c.Submit(ctx, contract.Submit{RequestID: rand.Text(), Code: "# settle\nNone", Unstored: true, WaitSeconds: 10})
		if err == nil && x.Status == contract.StatusSucceeded {
			return nil
		}
		if refused, ok := errors.AsType[*contract.Error](err); ok && refused.Code == contract.CodeKernelDead {
			err = restartDead(ctx, c)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the VM runs no code %s after the faults: %s %s: %w", settleTime, x.Status, x.Reason, err)
		}
		pause(ctx, 50*time.Millisecond)
	}
}

// meet lets all relays know a new VM. Otherwise a later step, in which nothing excuses it, could meet
// the new VM only after a lost answer, and then nobody knows whether the old one has run the code.
func (w *world) meet(ctx context.Context) (err error) {
	for _, l := range w.laptops {
		_, failed := l.current().Call(ctx, "check_colab_connection", nil)
		err = errors.Join(err, failed)
	}
	return err
}

// restartDead starts the kernel that died too often in a row.
func restartDead(ctx context.Context, c *client.Client) error {
	k, err := c.Kernel(ctx)
	if err == nil {
		_, err = c.RestartKernel(ctx, k.KernelID)
	}
	return err
}

// closeRelays ends the hosts, as closing them does.
func (w *world) closeRelays() error {
	var errs []error
	for _, l := range w.laptops {
		errs = append(errs, l.close())
	}
	return errors.Join(errs...)
}

// close ends the network and the executor, as a signal does.
func (w *world) close() error {
	if w.network != nil {
		w.network.close()
	}
	if w.executor == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	return w.executor.Stop(ctx)
}

// send sends a signal to a process and reports whether it existed.
func send(pid int, s syscall.Signal) bool { return syscall.Kill(pid, s) == nil }
