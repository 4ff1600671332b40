package attack

import (
	"fmt"
	"path/filepath"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

// mostOfFrames bounds what messages of the kernel cost, in MiB: the share of all sockets, what
// small messages may have besides, and what Go has not freed yet.
const mostOfFrames = 450

// rawFrames writes frames past ZeroMQ, to each connection of the executor: one of 250 MiB
// inside a message, thousands of small ones, and the head of one of which nothing comes. A
// file is there while one of them works.
const rawFrames = `
import os, socket
head = b'\x03' + (250 << 20).to_bytes(8, 'big')
for name in os.listdir('/proc/self/fd'):
    try:
        mine = socket.socket(fileno=os.dup(int(name)))
        if mine.family != socket.AF_UNIX or mine.getsockname()[-3:-1] != 'k-' or mine.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            continue
    except OSError:
        continue
    open('attack' + name, 'w').close()
    if os.fork() == 0:
        try:
            mine.setblocking(True)
            mine.sendall(head)
            for _ in range(250):
                mine.sendall(bytes(1 << 20))
            mine.sendall(b'\x01\x05hello' * 20_000)
            mine.sendall(head)
        finally:
            os.remove('attack' + name)
            os._exit(0)
`

// Code in the kernel has its sockets, and can write to all of them what is no message.
func TestRawFramesOfKernelCodeTakeBoundedMemory(t *testing.T) {
	tier.Long(t)
	s := newStand(t)
	defer s.vm.Kill() // the peak of its memory is above what other tests allow
	ctx := within.Context(t)
	x, err := s.relay.Submit(ctx, contract.Submit{Code: rawFrames, WaitSeconds: 1})
	must(t, err)
	within.Until(t, "the attack is over", func() bool {
		under, err := filepath.Glob(filepath.Join(s.vm.Config.Dir, "attack*"))
		return err == nil && len(under) == 0
	})
	used, err := harness.MemoryOf(s.vm.PID())
	must(t, err)
	t.Logf("%s (%s), memory %.0f to %.0f MiB (peak %.0f)", x.Status, x.Reason, s.before.memory.Now, used.Now, used.Peak)
	if grown := used.Peak - s.before.memory.Now; grown > mostOfFrames {
		t.Errorf("memory grew by %.0f MiB at the peak", grown)
	}
	kernel, err := s.relay.Kernel(ctx)
	must(t, err)
	_, err = s.relay.RestartKernel(ctx, kernel.KernelID)
	must(t, err)
	s.run("honest = 1")
}

// forgedReplies makes the kernel answer requests for its variables with millions of values.
const forgedReplies = `
shell = get_ipython()
_forged = %s
shell.user_expressions = lambda asked: {key: _forged for key in asked} if asked else {}
`

// Replies of the kernel that code there has forged are not decoded into gigabytes.
func TestForgedRepliesOfTheKernelTakeBoundedMemory(t *testing.T) {
	tier.Long(t)
	for name, forged := range map[string]string{
		"millions of types":     `{'status': 'ok', 'data': {str(i): 0 for i in range(4_000_000)}}`,
		"millions of variables": `{'status': 'ok', 'data': {'application/vnd.colab-relay.namespace+json': {'variables': [{}] * 8_000_000}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t)
			defer s.vm.Kill()
			ctx := within.Context(t)
			x, err := s.relay.Submit(ctx, contract.Submit{Code: fmt.Sprintf(forgedReplies, forged), WaitSeconds: 30})
			must(t, err)
			if x.Status != contract.StatusSucceeded {
				t.Fatalf("%+v", x)
			}
			if _, err := s.relay.Variables(ctx); err == nil {
				t.Error("a forged list of variables is believed")
			}
			used, err := harness.MemoryOf(s.vm.PID())
			must(t, err)
			t.Logf("memory %.0f to %.0f MiB (peak %.0f)", s.before.memory.Now, used.Now, used.Peak)
			if grown := used.Peak - s.before.memory.Now; grown > mostOfFrames {
				t.Errorf("memory grew by %.0f MiB at the peak", grown)
			}
		})
	}
}
