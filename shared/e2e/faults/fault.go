package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/freeport"
	"colabrelay/shared/smalldisk"
)

// fault is something that a step survives. strike returns when it is over and mended; an
// error means that the suite itself failed.
type fault struct {
	name    string
	excuses excuses
	weight  int    // how often the plan chooses it, relative to the others
	kills   string // the process that it kills
	strike  func(ctx context.Context, w *world, p planned) (struck bool, err error)
}

// planned is a fault with what the plan chose for it.
type planned struct {
	fault *fault
	marks int           // it strikes when the step has left this many marks in the ledger,
	after time.Duration // or when the operations have ended, and then this much later
	lasts time.Duration // how long it lasts, if it does
	at    int           // number of the relay
	bytes int           // after which a connection breaks, if it does
	side  string        // of the network: upstream to the executor, downstream from it
}

func (p planned) String() string {
	return fmt.Sprintf("%s (%d marks, %d ms, for %d ms, %d, %d bytes %s)", p.fault.name, p.marks,
		p.after.Milliseconds(), p.lasts.Milliseconds(), p.at, p.bytes, p.side)
}

func planFault(r *rand.Rand, laptops int) planned {
	return planned{
		fault: &kinds[pick(r)],
		marks: r.IntN(6),
		after: time.Duration(r.IntN(300)) * time.Millisecond,
		lasts: time.Duration(r.IntN(1500)) * time.Millisecond,
		at:    r.IntN(laptops),
		bytes: 1 << r.IntN(18),
		side:  [...]string{"upstream", "downstream"}[r.IntN(2)],
	}
}

// pick returns the number of a kind.
func pick(r *rand.Rand) int {
	sum := 0
	for _, k := range kinds {
		sum += k.weight
	}
	left := r.IntN(sum)
	for n, k := range kinds {
		if left -= k.weight; left < 0 {
			return n
		}
	}
	panic("the random number is above the sum of the weights")
}

// kinds are all faults.
var kinds = []fault{
	{"kernel killed", kernelEnds, 12, "kernel", killKernel},
	{"executor killed", executorEnds | kernelEnds | networkFails, 8, "executor", replaceExecutor(false)},
	{"relay killed", relayEnds, 26, "relay", func(ctx context.Context, w *world, p planned) (bool, error) {
		return true, w.laptops[p.at].replace(ctx, (*harness.Host).Kill)
	}},
	{"host gone", relayEnds, 2, "", func(ctx context.Context, w *world, p planned) (bool, error) {
		return true, w.laptops[p.at].replace(ctx, func(h *harness.Host) { _ = h.Close() })
	}},
	{"VM replaced", vmReplaced | executorEnds | kernelEnds | networkFails, 2, "executor", replaceExecutor(true)},
	{"kernel stopped", kernelStops, 2, "", stop((*world).kernelPID)},
	{"executor stopped", networkFails, 2, "", stop((*world).executorPID)},
	{"relay stopped", relayStops, 2, "", func(ctx context.Context, w *world, p planned) (bool, error) {
		return stop(func(*world) (int, error) { return w.laptops[p.at].current().PID(), nil })(ctx, w, p)
	}},
	{"tunnel cut", networkFails, 3, "", func(ctx context.Context, w *world, p planned) (bool, error) {
		return true, w.network.cut(ctx, p.lasts)
	}},
	{"latency", networkFails, 1, "", toxic(`{"type":"latency","stream":"%s","attributes":{"latency":150,"jitter":100}}`)},
	{"narrow line", networkFails, 1, "", toxic(`{"type":"bandwidth","stream":"%s","attributes":{"rate":40}}`)},
	{"sliced packets", networkFails, 1, "", toxic(`{"type":"slicer","stream":"%s","attributes":{"average_size":40,"size_variation":30,"delay":500}}`)},
	{"reset", networkFails, 1, "", toxic(`{"type":"reset_peer","stream":"%s","attributes":{"timeout":100}}`)},
	{"slow close", networkFails, 1, "", toxic(`{"type":"slow_close","stream":"%s","attributes":{"delay":1000}}`)},
	{"line ends", networkFails, 4, "", func(ctx context.Context, w *world, p planned) (bool, error) {
		return true, w.network.toxic(ctx, fmt.Sprintf(`{"type":"limit_data","stream":%q,"attributes":{"bytes":%d}}`, p.side, p.bytes), p.lasts)
	}},
	{"VM's disk full", vmDiskFull, 4, "", func(ctx context.Context, w *world, p planned) (bool, error) {
		return w.disks.fill(filepath.Dir(w.folder()), func() { pause(ctx, p.lasts) })
	}},
	{"laptop's disk full", laptopDiskFull, 4, "", func(ctx context.Context, w *world, p planned) (bool, error) {
		return w.disks.fill(w.laptops[p.at].dir, func() { pause(ctx, p.lasts) })
	}},
}

// killKernel kills the kernel, as the system does when memory runs out.
func killKernel(_ context.Context, w *world, _ planned) (bool, error) {
	pid, err := w.kernelPID()
	return err == nil && send(pid, syscall.SIGKILL), nil // none if it ends or starts just now
}

func replaceExecutor(newVM bool) func(context.Context, *world, planned) (bool, error) {
	return func(ctx context.Context, w *world, p planned) (bool, error) {
		return true, w.replaceExecutor(ctx, p.lasts, newVM)
	}
}

// toxic disturbs one side of the network as toxiproxy's JSON says.
func toxic(format string) func(context.Context, *world, planned) (bool, error) {
	return func(ctx context.Context, w *world, p planned) (bool, error) {
		return true, w.network.toxic(ctx, fmt.Sprintf(format, p.side), p.lasts)
	}
}

// stop stops a process for a while, as a laptop that sleeps does.
func stop(find func(*world) (int, error)) func(context.Context, *world, planned) (bool, error) {
	return func(ctx context.Context, w *world, p planned) (bool, error) {
		pid, err := find(w)
		if err != nil || !send(pid, syscall.SIGSTOP) {
			return false, nil // another fault has killed it
		}
		pause(ctx, p.lasts)
		send(pid, syscall.SIGCONT)
		return true, nil
	}
}

// diskMegabytes is the size of the disk of a VM and of a laptop. What the operations of a step
// need fits several times.
const diskMegabytes = 160

// isolated is a variable of the environment that tells the suite that it has its own mounts.
const isolated = "FAULTS_ISOLATED"

// again runs this program again where it may mount disks, and returns its exit code. ok is false if
// the system forbids that.
func again(ctx context.Context, args []string, stdout, stderr io.Writer) (code int, ok bool) {
	runtime.LockOSThread() // see Isolate
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), isolated+"=1")
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	smalldisk.Isolate(cmd)
	if err := cmd.Start(); err != nil {
		return 0, false
	}
	_ = cmd.Wait() // the program has printed its error
	return cmd.ProcessState.ExitCode(), true
}

// disks are the small disks of the VMs and laptops. Without small, they are ordinary folders, and no
// disk ever fills up.
type disks struct {
	small bool

	mu      sync.Mutex
	mounted []string
}

// newDisks returns small disks if the system allows them, which it finds out in dir, and prints a
// line if it does not.
func newDisks(dir string, out io.Writer) *disks {
	err := errors.New("the suite could not get a mount namespace")
	if os.Getenv(isolated) != "" {
		probe := filepath.Join(dir, "probe")
		if err = os.Mkdir(probe, 0o700); err == nil {
			err = errors.Join(smalldisk.Mount(probe, 1), smalldisk.Unmount(probe), os.Remove(probe))
		}
	}
	if err != nil {
		fmt.Fprintf(out, "full disks are left out of this run: %v\n", err)
	}
	return &disks{small: err == nil}
}

// add makes a folder that has a disk of its own.
func (d *disks) add(dir string) error {
	err := os.MkdirAll(dir, 0o700)
	if err != nil || !d.small {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := smalldisk.Mount(dir, diskMegabytes); err != nil {
		return err
	}
	d.mounted = append(d.mounted, dir)
	return nil
}

// fill fills the disk of a folder, and frees it again when hold returns.
func (d *disks) fill(dir string, hold func()) (struck bool, err error) {
	if !d.small {
		return false, nil
	}
	f, err := os.CreateTemp(dir, "filler")
	if err != nil {
		return false, err
	}
	if err = smalldisk.FillWith(f); err == nil {
		hold()
	}
	return true, errors.Join(err, f.Close(), os.Remove(f.Name()))
}

// close removes the disks. With keep, their contents stay in the folders.
func (d *disks) close(keep bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for _, dir := range d.mounted {
		copied := dir + ".copy"
		if keep {
			errs = append(errs, exec.Command("cp", "-a", dir, copied).Run())
		}
		errs = append(errs, smalldisk.Unmount(dir))
		if keep {
			errs = append(errs, os.Remove(dir), os.Rename(copied, dir))
		}
	}
	d.mounted = nil
	return errors.Join(errs...)
}

// network is the tunnel between the relays and the executor. Its address never changes.
type network struct {
	address, upstream string

	mu    sync.Mutex // held while a fault has the network
	proxy *toxiproxy.Proxy
}

func newNetwork(ctx context.Context, upstream string) (*network, error) {
	address, err := freeport.Address()
	if err != nil {
		return nil, err
	}
	n := &network{address: address, upstream: upstream}
	return n, n.connect(ctx)
}

// connect starts a proxy without faults. A new one each time, because removing toxics from
// connections that are blocked never ends.
func (n *network) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	n.proxy = toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()), "tunnel", n.address, n.upstream)
	err := harness.Poll(ctx, func() (bool, error) { return n.proxy.Start() == nil, nil })
	if err != nil {
		return fmt.Errorf("starting the proxy on %s again: %w", n.address, err)
	}
	return nil
}

// cut closes all connections and refuses new ones for d.
func (n *network) cut(ctx context.Context, d time.Duration) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.proxy.Stop()
	pause(ctx, d)
	return n.connect(ctx)
}

// toxic disturbs all connections for d, and then cuts them. description is toxiproxy's JSON.
func (n *network) toxic(ctx context.Context, description string, d time.Duration) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	proxy, added := n.proxy, make(chan error, 1)
	go func() { // it waits for connections that are blocked, until they are cut
		_, err := proxy.Toxics.AddToxicJson(strings.NewReader(description))
		added <- err
	}()
	pause(ctx, d)
	proxy.Stop()
	if err := <-added; err != nil {
		return fmt.Errorf("adding the toxic %s: %w", description, err)
	}
	return n.connect(ctx)
}

// close ends the proxy.
func (n *network) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.proxy.Stop()
}

// pause returns after d, or when ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

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
