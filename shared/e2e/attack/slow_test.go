package attack

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/contract"
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
	if grown := s.usage().memory.Now - s.before.memory.Now; grown > readers {
		t.Errorf("memory grew by %.0f MiB for %d readers", grown, readers)
	}
	for _, conn := range slow {
		must(t, conn.Close())
	}
	s.end([]int{})
}
