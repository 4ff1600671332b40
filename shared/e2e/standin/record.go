package standin

import (
	"strings"
	"sync"
)

// record is what a Tab saw and sent.
type record struct {
	mu    sync.Mutex
	lines strings.Builder
}

func (r *record) add(what, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines.WriteString(what + ": " + text + "\n")
}

func (r *record) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lines.String()
}
