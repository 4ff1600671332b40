package audit

import (
	"bytes"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

// messages is a log for a test to read.
type messages struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (m *messages) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.buf.Write(p)
}

func (m *messages) String() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.buf.String()
}

// count checks that n records were put: each of them is in the file once and in order, or is
// counted as omitted.
func count(t *testing.T, records []record, n int) (omitted int) {
	t.Helper()
	next := 0
	for _, r := range records {
		switch r.Event {
		case eventEnded:
			if r.ExecutionID != strconv.Itoa(next) {
				t.Fatalf("execution %s, want %d", r.ExecutionID, next)
			}
			next++
		case eventOmitted:
			if r.Since == nil || r.Cause == "" {
				t.Errorf("%+v", r)
			}
			omitted += r.Count
			next += r.Count
		}
	}
	if next != n {
		t.Errorf("%d records are accounted for, %d were made", next, n)
	}
	return omitted
}

func ended(i int) contract.Execution {
	return contract.Execution{ExecutionID: strconv.Itoa(i), Status: contract.StatusSucceeded}
}

// A FIFO stands for a disk on which a write hangs: the writer waits until somebody reads.
func TestAHangingDiskStopsNothingAndWhatItCostIsCounted(t *testing.T) {
	tier.Long(t)
	cfg := config(t)
	must(t, syscall.Mkfifo(cfg.Path, 0o600))
	fifo, err := os.OpenFile(cfg.Path, os.O_RDWR, 0)
	must(t, err)
	fill(t, cfg.Path)
	reader, err := os.Open(cfg.Path) // the writer closes its own
	must(t, err)
	defer reader.Close()
	limits := Limits{QueueBytes: 16 << 10}
	l := &Log{cfg: cfg, file: &file{path: cfg.Path, limits: limits.withDefaults(), f: fifo}, queue: newQueue(limits.QueueBytes), delay: time.Millisecond, open: map[string]Source{}}
	stop := running(l)
	for range 2 { // returns, and only the first one waits
		l.Submitted(from, submit("s", "1"))
		if !l.stalled.Load() {
			t.Error("the next submission would wait too")
		}
	}
	const n = 5000 // more than the queue holds
	for i := range n {
		l.Ended(ended(i), "")
	}
	l.queue.mu.Lock()
	if l.queue.bytes > limits.QueueBytes || l.queue.dropped.count == 0 {
		t.Errorf("%d bytes wait, %d records dropped", l.queue.bytes, l.queue.dropped.count)
	}
	l.queue.mu.Unlock()
	stop() // returns although the write still hangs

	got := make(chan []byte)
	go func() { got <- read(reader, `"executor_stopped"`) }()
	path := cfg.Path + ".read"
	must(t, os.WriteFile(path, <-got, 0o600))
	records := lines(t, path)
	dropped := 0
	for _, r := range of(eventOmitted, records) {
		dropped += r.Count
	}
	if kept := len(of(eventEnded, records)) + len(of(eventSubmitted, records)); dropped == 0 || kept+dropped != n+2 {
		t.Errorf("%d kept and %d omitted of %d", kept, dropped, n+2)
	}
}

// fill fills a FIFO with spaces, which mean nothing before a line of JSON.
func fill(t *testing.T, path string) {
	t.Helper()
	fd, err := syscall.Open(path, syscall.O_WRONLY|syscall.O_NONBLOCK, 0)
	must(t, err)
	defer syscall.Close(fd)
	for _, piece := range []int{4 << 10, 1} {
		for err = nil; err == nil; _, err = syscall.Write(fd, []byte(strings.Repeat(" ", piece))) {
		}
	}
}

// read reads from f until it has read the text and the rest of its line.
func read(f *os.File, text string) []byte {
	var all []byte
	piece := make([]byte, 64<<10)
	for !strings.Contains(string(all), text) || all[len(all)-1] != '\n' {
		n, err := f.Read(piece)
		if err != nil {
			return all
		}
		all = append(all, piece[:n]...)
	}
	return all
}

// fails records n executions while the file cannot be written, and mends it.
func fails(t *testing.T, cfg Config, n int, break_, mend func()) []record {
	t.Helper()
	said := &messages{}
	cfg.Log = slog.New(slog.NewTextHandler(said, nil))
	l := open(t, cfg)
	stop := running(l)
	l.Submitted(from, submit("before", "1"))
	break_()
	for i := range n {
		l.Ended(ended(i), "")
	}
	within.Until(t, "the failure is logged", func() bool { return strings.Contains(said.String(), "cannot be written") })
	l.Submitted(from, submit("during", "1"))
	mend()
	within.Until(t, "the log is written again", func() bool { return strings.Contains(said.String(), "written again") })
	stop()
	return lines(t, cfg.Path)
}
