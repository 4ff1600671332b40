package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"colabrelay/shared/e2e/harness"
)

// The chunked run adds up a file piece by piece. The sum is right only if every piece
// was added once and in order.
const (
	pieces     = 60
	pieceBytes = 256 << 10
	addSetup   = "import os, struct, time\ntotal = 0"
	addLoop    = "if i == 45 and os.path.exists('this-vm-ends'):\n    open('at-45', 'w').close()\n    while True:\n        time.sleep(1)\nwith open('measured.bin', 'rb') as f:\n    f.seek(i * 262144)\n    values = struct.unpack('<65536I', f.read(262144))\ntotal = (total * 3 + sum(values)) % 2**61\nresult = total\ntime.sleep(0.15)\nprint(f'piece {i}: {total}')"
)

// measured returns the data of the demo and the total that the chunked run must compute.
func measured() (data []byte, total uint64) {
	data = make([]byte, 0, pieces*pieceBytes)
	state := uint64(88172645463325252)
	for range pieces {
		var sum uint64
		for range pieceBytes / 4 {
			state ^= state << 13
			state ^= state >> 7
			state ^= state << 17
			data = binary.LittleEndian.AppendUint32(data, uint32(state))
			sum += uint64(uint32(state))
		}
		total = (total*3 + sum) % (1 << 61)
	}
	return data, total
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// upload writes the data to a local file and uploads it to the first VM.
func (d *demo) upload(ctx context.Context) {
	d.title("upload a file", "It travels in parts. The SHA-256 of the whole file is checked before it gets its name.")
	data, _ := measured()
	harness.Check(os.WriteFile(filepath.Join(d.dir, "measured.bin"), data, 0o600))
	d.sendData(ctx, digest(data))
}

func (d *demo) sendData(ctx context.Context, sum string) {
	a := d.toTheEnd(ctx, "upload_to_colab", map[string]any{
		"local_path": filepath.Join(d.dir, "measured.bin"), "remote_path": "measured.bin"})
	harness.FailIf(a.String("sha256") != sum, "the upload's SHA-256 is %q, want %q", a.String("sha256"), sum)
}

func (d *demo) addUp(ctx context.Context) harness.Answer {
	return d.call(ctx, d.host, "run_chunked_operation", map[string]any{
		"setup_code": addSetup, "loop_code": addLoop, "n_iterations": pieces, "batch_size": 10, "checkpoint_name": "demo"})
}

// chunkedRun starts a chunked run and kills the VM in the middle of a batch. Nothing was
// saved explicitly before.
func (d *demo) chunkedRun(ctx context.Context) {
	d.title("the VM is killed during a chunked run", "The run has 60 iterations. The VM ends in iteration 45, and nothing was saved by the agent.")
	_ = d.host.Close()
	d.startHost(ctx, shortHold, nil)
	work := d.executor.Config.Dir
	harness.Check(os.WriteFile(filepath.Join(work, "this-vm-ends"), nil, 0o600))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	killed := whenWritten(ctx, filepath.Join(work, "at-45"), d.executor.Kill) // the kernel ends with it
	for {
		a := d.addUp(ctx)
		select {
		case err := <-killed:
			d.line("$ kill -9 %d   # during iteration 45: the executor and its kernel", d.executor.PID())
			harness.Check(err)
			return
		default:
		}
		harness.FailIf(a.String("status") == "finished" || a.IsError && !isInTheWay(a), "the run ended before the executor was killed: %s", a.Text)
	}
}

// isInTheWay reports whether an error says only that a busy machine did not answer in time.
func isInTheWay(a harness.Answer) bool {
	return slices.Contains([]string{"timeout", "unreachable", "cancelled"}, a.Error())
}

// anotherVM starts an empty executor, pairs the running relay with it, and uploads the
// data again.
func (d *demo) anotherVM(ctx context.Context) {
	d.title("another VM", "It is empty and has a new address and a new secret. It is paired while the relay runs; then the file is uploaded again.")
	old := d.executor
	work := filepath.Join(d.dir, "vm2")
	harness.Check(os.Mkdir(work, 0o700))
	d.executor = harness.Must(harness.StartExecutor(ctx, harness.ExecutorConfig{Binary: d.binaries.Executor, Python: d.python, Dir: work}))
	d.before = append(d.before, old)
	d.line("$ executor --listen 127.0.0.1:0 --workdir %s", work)
	d.pair(ctx)
	data, _ := measured()
	d.sendData(ctx, digest(data))
}

func (d *demo) pair(ctx context.Context) {
	pair := exec.CommandContext(ctx, d.binaries.Relay, "pair")
	pair.Stdin = strings.NewReader(d.executor.Ready.Pairing)
	pair.Env = append(os.Environ(), d.home()...)
	out, err := pair.CombinedOutput()
	harness.FailIf(err != nil, "colab-relay pair: %w\n%s", err, out)
	d.line("$ colab-relay pair")
	fmt.Fprintln(d.out, indent(string(out), "      "))
}

// resumed runs the remaining iterations and compares the total with the expected one.
func (d *demo) resumed(ctx context.Context) {
	d.title("the chunked run continues", "The same call again: the relay kept the variable total, restores it in the new kernel, and continues at the iteration of its last copy.")
	for a := (harness.Answer{}); a.String("status") != "finished"; {
		a = d.addUp(ctx)
		harness.FailIf(a.IsError && !isInTheWay(a), "the resumed run: %s", a.Text)
	}
	_, total := measured()
	a := d.quick(ctx, "open('total.txt', 'w').write(f'{total}\\n'); total")
	harness.FailIf(a.String("result") != fmt.Sprint(total), "the total is %q, an uninterrupted run gives %d", a.String("result"), total)
	d.line("an uninterrupted run also gives %d", total)
}

// alone kills the relay after the first answer of a long loop. The VM goes on, and a new relay reads
// every value.
func (d *demo) alone(ctx context.Context) {
	const n = 2000
	d.title("a loop finishes while no relay exists", "The loop has 2,000 iterations. The relay is killed after its first answer.")
	_ = d.host.Close()
	d.startHost(ctx, shortHold, nil)
	last := filepath.Join(d.executor.Config.Dir, "last")
	loop := fmt.Sprintf("time.sleep(.01)\nsquares += i * i\nresult = squares\nif i == %d: open(%q, 'w').close()", n-1, last)
	a := d.call(ctx, d.host, "run_chunked_operation", map[string]any{
		"setup_code": "import time\nsquares = 0", "loop_code": loop, "n_iterations": n, "batch_size": 100, "checkpoint_name": "alone"})
	harness.FailIf(a.IsError, "the first call: %s", a.Text)
	d.line("$ kill -9 %d   # the relay", d.host.PID())
	d.host.Kill()
	harness.Check(<-whenWritten(ctx, last, func() {}))
	d.startHost(ctx, shortHold, nil)
	for a.String("status") != "finished" {
		a = d.call(ctx, d.host, "run_chunked_operation", map[string]any{"checkpoint_name": "alone"})
		harness.FailIf(a.IsError, "the second call: %s", a.Text)
	}
	right := (n - 1) * n * (2*n - 1) / 6
	harness.FailIf(!strings.Contains(a.Text, fmt.Sprintf("%d: %d\n", n-1, right)), "the last value is not %d: %s", right, a.Text)
}

// savedState saves the variables of the kernel, restarts the kernel, and restores them.
func (d *demo) savedState(ctx context.Context) {
	d.title("save and restore all variables", "Versions are kept on the laptop. Any kernel can restore them, also on another VM.")
	for _, step := range []struct {
		tool, status string
		args         map[string]any
	}{
		{"save_kernel_state", "saved", map[string]any{"name": "demo"}},
		{"restart_kernel", "", nil},
		{"restore_kernel_state", "restored", map[string]any{"name": "demo"}},
	} {
		a := d.toTheEnd(ctx, step.tool, step.args)
		harness.FailIf(a.IsError || step.status != "" && a.String("status") != step.status, "%s: %s", step.tool, a.Text)
	}
	_, total := measured()
	a := d.quick(ctx, "total")
	harness.FailIf(a.String("result") != fmt.Sprint(total), "the restored total is %q", a.String("result"))
}

// download fetches the result and compares its SHA-256.
func (d *demo) download(ctx context.Context) {
	d.title("download the result", "It is saved in LOCAL_SAVE_DIR after its SHA-256 was checked.")
	a := d.toTheEnd(ctx, "download_from_colab", map[string]any{"remote_path": "total.txt"})
	got := harness.Must(os.ReadFile(a.String("local_path")))
	_, total := measured()
	want := fmt.Appendf(nil, "%d\n", total)
	harness.FailIf(!bytes.Equal(got, want) || a.String("sha256") != digest(want), "the file holds %q with SHA-256 %q", got, a.String("sha256"))
	d.line("$ sha256sum %s", a.String("local_path"))
	d.line("  %s", digest(got))
}
