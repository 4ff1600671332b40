package harness

import (
	"strings"
	"testing"
)

func TestWhatTheWireItselfHasNotReadIsNotQueued(t *testing.T) {
	const wire, target = "127.0.0.1:4096", "127.0.0.1:8192" // 1000 and 2000 in hexadecimal
	line := func(local, remote, state, queues string) string {
		return "  1: 0100007F:" + local + " 0100007F:" + remote + " " + state + " " + queues + " 00:00000000\n"
	}
	for _, test := range []struct {
		what, line string
		queued     bool
	}{
		{"an idle connection", line("2000", "9000", "01", "00000000:00000000"), false},
		{"unread by the target", line("2000", "9000", "01", "00000000:00000010"), true},
		{"unread by the client", line("9001", "1000", "01", "00000000:00000010"), true},
		{"unsent to the target", line("9000", "2000", "01", "00000010:00000000"), true},
		{"unsent to the client", line("1000", "9001", "01", "00000010:00000000"), true},
		{"unread by the wire", line("9000", "2000", "01", "00000000:00000010") + line("1000", "9001", "01", "00000000:00000010"), false},
		{"unsent by the programs", line("2000", "9000", "01", "00000010:00000000") + line("9001", "1000", "01", "00000010:00000000"), false},
		{"a listener", line("2000", "0000", "0A", "00000000:00000010"), false},
		{"others' connections", line("9000", "9001", "01", "00000010:00000010"), false},
		{"no line of the table", strings.Repeat("x ", 3) + "\n", false},
	} {
		if got := queued("  sl  local_address rem_address st tx_queue:rx_queue\n"+test.line, wire, target); got != test.queued {
			t.Errorf("%s: %t", test.what, got)
		}
	}
}
