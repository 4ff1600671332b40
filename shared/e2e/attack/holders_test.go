package attack

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

// Holders of the key request parts of 8 MiB and read none of them. The executor holds a record
// of each in memory, not a part.
func TestSlowReadersTakeNoMemory(t *testing.T) {
	s := newStand(t)
	s.run(fmt.Sprintf("open('large.bin', 'wb').truncate(%d)", contract.MaxFilePart))
	stat, err := s.relay.Stat(t.Context(), "large.bin", false, 0)
	must(t, err)
	query := url.Values{"path": {"large.bin"}, "etag": {stat.ETag}}.Encode()
	const readers = 60
	var slow []net.Conn
	for n := range readers {
		conn := dial(t, s.address, n)
		defer conn.Close()
		must(t, conn.SetReadBuffer(4<<10))
		_, err := io.WriteString(conn, s.captureOf(http.MethodGet, contract.PathContent+"?"+query, nil, time.Now()).raw())
		must(t, err)
		var head [12]byte
		if _, err := io.ReadFull(conn, head[:]); err != nil || !strings.HasSuffix(string(head[:]), " 200") {
			t.Fatalf("reader %d is answered %q: %v", n, head, err)
		}
		if n%10 == 0 {
			s.workHonestly()
		}
		slow = append(slow, conn)
	}
	if grown := s.usage().Memory.Now - s.before.Memory.Now; grown > readers {
		t.Errorf("memory grew by %.0f MiB for %d readers", grown, readers)
	}
	for _, conn := range slow {
		must(t, conn.Close())
	}
	s.end([]int{})
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
	t.Logf("%s (%s), memory %.0f to %.0f MiB (peak %.0f)", x.Status, x.Reason, s.before.Memory.Now, used.Now, used.Peak)
	if grown := used.Peak - s.before.Memory.Now; grown > mostOfFrames {
		t.Errorf("memory grew by %.0f MiB at the peak", grown)
	}
	kernel, err := s.relay.Kernel(ctx)
	must(t, err)
	_, err = s.relay.RestartKernel(ctx, kernel.KernelID)
	must(t, err)
	s.run("honest = 1")
}
