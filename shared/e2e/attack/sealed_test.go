package attack

import (
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

// Tunnels send requests of strangers and of the owner over one connection. If tunnel and
// executor disagree where a stranger's request ends, the owner gets answers to what the
// stranger hid in it. So the connection ends with each such request.
func TestAStrangerOnTheOwnersConnectionHidesNoRequest(t *testing.T) {
	s := newStand(t)
	n := 0
	for _, lines := range []string{
		"Transfer-Encoding: chunked", "Content-Length: 5\r\nTransfer-Encoding: chunked", "Transfer-Encoding: CHUNKED\r\nContent-Length: 0", "Transfer-Encoding:\r\n chunked\r\nContent-Length: 5",
		"Content-Length: 5\r\nContent-Length: 6", "Content-Length: +5", "Content-Length : 5", "Expect: x", "A: \x00",
	} {
		for _, first := range []string{message("POST", "/v1/executions", lines), message("GET", "/v1/kernel", lines), message("POST", "/health", lines)} {
			n++
			own := s.captureOf(http.MethodGet, contract.PathKernel, nil, time.Now())
			got := ask(t, s.address, n, own.raw()+first+"0\r\n\r\n"+smuggled)
			if !regexp.MustCompile(`^200 (400|401|417|501)$`).MatchString(got.statuses) {
				t.Errorf("%q: answered %s", first, got.statuses)
			}
		}
		s.workHonestly()
	}
	t.Logf("%d cases", n)
	s.end([]int{})
}

// The same requests arrive on 40 connections at the same moment.
func TestConcurrentReplaysRunOnce(t *testing.T) {
	s := newStand(t)
	const connections = 40
	var want []int
	for n := range 5 {
		raw := s.capture(n).last()
		want = append(want, n)
		var accepted [connections]string
		start := make(chan struct{})
		var all sync.WaitGroup
		for i := range connections {
			conn := dial(t, s.address, i)
			all.Go(func() {
				defer conn.Close()
				<-start
				if _, err := io.WriteString(conn, raw); err != nil {
					t.Error(err)
				}
				accepted[i] = read(t, conn).statuses
			})
		}
		close(start)
		all.Wait()
		slices.Sort(accepted[:])
		if accepted[0] != "200" || accepted[1] != "401" || accepted[connections-1] != "401" {
			t.Errorf("answered %v", accepted)
		}
		s.workHonestly()
	}
	s.end(want)
}

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
