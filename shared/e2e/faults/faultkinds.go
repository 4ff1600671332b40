package main

import (
	"context"
	"fmt"
	"path/filepath"
	"syscall"

	"colabrelay/shared/e2e/harness"
)

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
