package harness

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"time"
)

// awaitRead returns when the programs at both ends have read what passed the wire, as they have
// on a real line, whose ends are not on the same busy machine. Where the system has no
// /proc/net/tcp it returns at once.
func (w *Wire) awaitRead() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = Poll(ctx, func() (bool, error) {
		table, err := os.ReadFile("/proc/net/tcp")
		return err != nil || !queued(string(table), w.Addr, w.target), nil
	})
}

// queued reports whether the table, as in proc(5), has a connection to or from the wire whose
// program has not read or whose system has not sent everything. What the wire itself has not read
// does not count.
func queued(table, wire, target string) bool {
	const empty = "00000000"
	wirePort, targetPort := hexPort(wire), hexPort(target)
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)            // number, local and remote address, state, queues
		if len(fields) < 5 || fields[3] != "01" { // established
			continue
		}
		send, receive, _ := strings.Cut(fields[4], ":")
		local, remote := fields[1][len(fields[1])-4:], fields[2][len(fields[2])-4:]
		switch {
		case remote == targetPort, local == wirePort: // the wire's
			if send != empty {
				return true
			}
		case local == targetPort, remote == wirePort: // the programs'
			if receive != empty {
				return true
			}
		}
	}
	return false
}

// hexPort returns the port of an address as /proc/net/tcp has it.
func hexPort(address string) string {
	a, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%04X", a.Port)
}
