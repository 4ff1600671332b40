package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
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

// leftoverTime is the most that ended programs may take to clean up on a busy machine.
const leftoverTime = 2 * time.Minute

// eventually returns the last error of check if none of its calls within leftoverTime succeeds.
func eventually(ctx context.Context, check func() error) error {
	ctx, cancel := context.WithTimeout(ctx, leftoverTime)
	defer cancel()
	var last error
	if harness.Poll(ctx, func() (bool, error) { last = check(); return last == nil, nil }) == nil {
		return nil
	}
	return last
}

// nothingLeft checks that no process works in the folders of the suite, and that the last VM and
// the laptops have no temporary files and no parts of transfers. Each relay that was killed may
// have left a file in which it kept long output.
func (w *world) nothingLeft(relayKills int) error {
	if err := noProcess(w.dir); err != nil {
		return err
	}
	roots := []string{filepath.Dir(w.vm.Dir)}
	for _, l := range w.laptops {
		roots = append(roots, l.dir)
	}
	spools, err := filepath.Glob(filepath.Join(w.dir, "laptop*", "saved", "executions", "*", ".std*.part"))
	if err != nil || len(spools) > relayKills {
		return errors.Join(err, fmt.Errorf("%d relays were killed, and %d files with output are left: %q", relayKills, len(spools), spools))
	}
	for _, root := range roots {
		if err := noRemains(root); err != nil {
			return err
		}
	}
	return nil
}

// recentLogs is how many event logs of runs that have ended the executor keeps open, for late
// output; the executor's execution queue sets it.
const recentLogs = 16

// noDescriptors checks that the executor, which no relay uses any more, has no more connections
// than at its first start, and no more files than the logs of its newest runs.
func (w *world) noDescriptors() error {
	now, err := harness.ProcessOf(w.executor.PID())
	if err != nil {
		return err
	}
	if now.Sockets > w.began.Sockets || now.Descriptors > w.began.Descriptors+recentLogs {
		return fmt.Errorf("the executor has %d descriptors, %d of them sockets, without a relay; it had %d and %d at its start",
			now.Descriptors, now.Sockets, w.began.Descriptors, w.began.Sockets)
	}
	return nil
}

// threadsMore is how many threads a relay may have more than at its start: Go keeps the threads that
// once waited for a file at the same time.
const threadsMore = 16

// noRelayDescriptors checks that the relays, which no call uses and which reach no executor any more,
// have no more connections and files than at their start.
func (w *world) noRelayDescriptors() error {
	for _, l := range w.laptops {
		now, err := harness.ProcessOf(l.current().PID())
		if err == nil {
			err = grown(l.began, now)
		}
		if err != nil {
			return fmt.Errorf("relay %d without a call: %w", l.number, err)
		}
	}
	return nil
}

// grown returns an error if a relay has more now than it had when it began.
func grown(began, now harness.Process) error {
	if now.Sockets > began.Sockets || now.Descriptors > began.Descriptors || now.Threads > began.Threads+threadsMore || len(now.Children) > len(began.Children) {
		return fmt.Errorf("it has %d descriptors, %d of them sockets, %d threads and %d children; it had %d, %d, %d and %d at its start; its open files are %q",
			now.Descriptors, now.Sockets, now.Threads, len(now.Children), began.Descriptors, began.Sockets, began.Threads, len(began.Children), now.Files)
	}
	return nil
}

// Bounds of the resident memory of one program among many relays, in MiB.
const (
	mostExecutor = 160
	mostRelay    = 80
)

// small fails if a program needed too much memory.
func (w *world) small(out io.Writer) error {
	executor, err := harness.MemoryOf(w.executor.PID())
	largest := 0.0
	for _, l := range w.laptops {
		m, failed := harness.MemoryOf(l.current().PID())
		largest, err = max(largest, m.Peak), errors.Join(err, failed)
	}
	fmt.Fprintf(out, "memory: the executor at most %.0f MiB, the largest relay %.0f\n", executor.Peak, largest)
	if executor.Peak > mostExecutor || largest > mostRelay {
		err = errors.Join(err, fmt.Errorf("the executor took %.0f MiB, of %d; a relay took %.0f, of %d", executor.Peak, mostExecutor, largest, mostRelay))
	}
	return err
}

// noProcess checks that no process was started with, or works in, the folder.
func noProcess(dir string) error {
	pids, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return err
	}
	for _, proc := range pids {
		command, _ := os.ReadFile(filepath.Join(proc, "cmdline")) // it may end meanwhile
		folder, _ := os.Readlink(filepath.Join(proc, "cwd"))
		if bytes.Contains(command, []byte(dir+"/")) || strings.HasPrefix(folder, dir+"/") {
			return fmt.Errorf("process %s is left: %q in %q", filepath.Base(proc), bytes.ReplaceAll(command, []byte{0}, []byte{' '}), folder)
		}
	}
	return nil
}

// noRemains checks that a folder has no temporary files of the programs and no parts of files.
func noRemains(root string) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		temporary := strings.HasPrefix(name, "colab-relay-") && (strings.Contains(path, "/tmp/") || strings.Contains(path, "/temp/"))
		part := strings.HasSuffix(name, ".colab-part") || strings.HasSuffix(name, ".colab-part.json")
		if temporary || part {
			return fmt.Errorf("%q is left", path)
		}
		return nil
	})
}

// mayLeaveStates is how many states the operations of a step may leave on the VM: those that a
// relay could not delete, because the kernel, the executor or the network failed just then, or which
// another save made stale.
func (s step) mayLeaveStates() (n int) {
	if !s.excuses().any(kernelEnds|executorEnds|networkFails) && len(s.operations) < greedyCalls {
		return 0
	}
	for _, o := range s.operations {
		switch o.operation.(type) {
		case *state, *chunkedRun:
			n++
		}
	}
	return n
}

// endOldStates checks that no more states are left than faults excuse, and that the next save
// deletes them once they are a day old, as is promised.
func (s *suite) endOldStates(ctx context.Context) error {
	found, err := filepath.Glob(filepath.Join(filepath.Dir(s.world.folder()), "tmp", contract.StateFolderPrefix+"*"))
	if err != nil || len(found) == 0 {
		return err
	}
	if len(found) > s.statesLeft {
		return fmt.Errorf("%d states are left on the VM, and faults excuse %d: %q", len(found), s.statesLeft, found)
	}
	s.tally.add(didLine, "states left for a day", len(found))
	old := time.Now().Add(-25 * time.Hour)
	for _, folder := range found {
		if err := os.Chtimes(folder, old, old); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	_, err = (&scene{s, s.world.laptops[0], 0}).untilDone(ctx, "save_kernel_state", map[string]any{"name": "last"}, nil)
	return err
}
