package kernel

import (
	"os"
	"strings"
	"sync"
	"time"
)

const (
	// tailBytes is how much of a process's stdout and stderr is kept, to explain its
	// end. ipykernel captures nearly everything that the code prints.
	tailBytes = 4 << 10
	// lastWords is how shortly before the end a process must have written something
	// for that to explain the end.
	lastWords = 2 * time.Second
	// lastRead is how long a process's output is read after its end.
	lastRead = 100 * time.Millisecond
	// maxLine bounds a line in a reason, in runes.
	maxLine = 300
)

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	data []byte
	at   time.Time // of the last piece
}

// follow reads r until its end or, because a child that outlives the kernel may keep the
// pipe open, until its deadline.
func (t *tail) follow(r *os.File) {
	defer r.Close()
	buf := make([]byte, tailBytes)
	for {
		n, err := r.Read(buf)
		t.add(buf[:n])
		if err != nil {
			return
		}
	}
}

func (t *tail) add(b []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(b) > 0 {
		t.at = time.Now()
	}
	t.data = append(t.data, b...)
	if over := len(t.data) - tailBytes; over > 0 {
		t.data = append(t.data[:0], t.data[over:]...)
	}
}

// forget drops everything: what a kernel printed while it started, such as warnings, does not
// explain the end of one that was ready.
func (t *tail) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data = nil
}

func (t *tail) recent() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Since(t.at) < lastWords
}

// lastLine returns the last line. After a traceback it is Python's own summary.
func (t *tail) lastLine() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := strings.TrimSpace(string(t.data))
	line := []rune(strings.ToValidUTF8(text[strings.LastIndexByte(text, '\n')+1:], "�"))
	return string(line[:min(len(line), maxLine)])
}
