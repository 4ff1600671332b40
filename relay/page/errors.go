package page

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrTabLost says that the tab was lost during a call.
	ErrTabLost = errors.New("the connection to Colab's tab was lost during the call; the cell may run on in Colab: connect again and read the cells before you repeat anything")
	// ErrRunning says that the caller stopped waiting for a cell that still runs.
	ErrRunning = errors.New("the cell still runs in Colab: run the same cell again to wait for its end, which does not start it twice")
	// ErrClosed says that the Page was closed.
	ErrClosed = errors.New("the connection to Colab's page was closed")
)

// WaitingError says that the caller's time ended while the Page still waits for the tab.
type WaitingError struct {
	URL string // to open by hand; it holds the token, so it must not be logged
}

func (*WaitingError) Error() string {
	return "no tab of Colab has connected yet: accept the dialog in the page that was opened, then call again"
}

// NoTabError says that no tab connected in time. The next call opens the notebook again.
type NoTabError struct {
	URL string // with a new token; it must not be logged
}

func (*NoTabError) Error() string {
	return "no tab of Colab connected in time"
}

// ToolError is an error that the page reported for a call.
type ToolError struct {
	Tool string
	Text string // of the page: bounded, but not made safe to show
}

func (e *ToolError) Error() string { return fmt.Sprintf("Colab's page refused %s: %q", e.Tool, e.Text) }

// MissingToolError says that the page has no tool of this name.
type MissingToolError struct {
	Tool string
	Has  []string // names that the page has; bounded, but not made safe to show
}

func (e *MissingToolError) Error() string {
	return fmt.Sprintf("Colab's page has no tool %q, it has %q: Google may have changed the page; update colab-relay", e.Tool, strings.Join(e.Has, ", "))
}
