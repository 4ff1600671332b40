package terminal

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/charmbracelet/x/ansi"

	"colabrelay/relay/plain"
)

// statusEvery is the shortest time between two changes of a Status.
const statusEvery = 100 * time.Millisecond

// Status is one line of a terminal that is written over. Elsewhere it writes nothing.
type Status struct {
	Out io.Writer

	mu    sync.Mutex
	drawn time.Time
	shown bool
}

// Show writes text in place of the line, unless the last one is too recent.
func (s *Status) Show(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !Is(s.Out) || time.Since(s.drawn) < statusEvery {
		return
	}
	s.drawn, s.shown = time.Now(), true
	fmt.Fprintf(s.Out, "\r\x1b[K%s", ansi.Truncate(plain.Line(text), Width(s.Out)-1, "…"))
}

// Clear removes the line, so that something else can be written there.
func (s *Status) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shown {
		s.shown, s.drawn = false, time.Time{}
		fmt.Fprint(s.Out, "\r\x1b[K")
	}
}
