package page

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrTabLost says that the tab was lost during a call.
	ErrTabLost = errors.New("the connection to Colab's tab was lost during the call; a cell that ran may still be running in Colab: connect again and read the cells before you repeat anything")
	// ErrRunning says that the caller's time ended while the cell still runs.
	ErrRunning = errors.New("the cell still runs in Colab: run the same cell again to wait for its end; that does not start it twice")
	// ErrClosed says that the Page was closed.
	ErrClosed = errors.New("the relay's connection to Colab's page was closed: call again to open it")
)

// WaitingError says that the caller's time ended, or that no browser could be opened, while
// the Page waits for the tab.
type WaitingError struct {
	URL     string // to open by hand; it holds the token, so it must not be logged
	Browser error  // why no browser was opened, without the token; nil if one was
}

func (e *WaitingError) Error() string {
	if e.Browser != nil {
		return e.NoBrowser() + ". Once the URL is open, accept Colab's dialog there, then call again"
	}
	return "no tab of Colab has connected yet: open the URL if no page shows it, accept Colab's dialog there, then call again; that opens no second page"
}

// NoBrowser says that no browser was opened, and why; Browser must not be nil. An error of package
// browser begins with what failed, which this says already.
func (e *WaitingError) NoBrowser() string {
	return "no browser was opened: " + strings.TrimPrefix(e.Browser.Error(), "open a browser: ")
}

// NoTabError says that no tab connected in time. The next call opens the notebook again.
type NoTabError struct {
	URL     string   // with a new token; it must not be logged
	Refused []string // why connections were refused meanwhile, in fixed words
}

func (e *NoTabError) Error() string {
	var b strings.Builder
	b.WriteString("no tab of Colab connected in time")
	for _, why := range e.Refused {
		b.WriteString("; a connection was refused: " + why)
	}
	b.WriteString(". Usual reasons: Colab's dialog was not accepted; the browser is not signed in to Google; " +
		"the browser was not allowed to connect to this computer (Chrome: site settings, local network access) or does not support it (Safari); " +
		"the browser runs on another computer")
	return b.String()
}

// OtherNotebookError says that the Page is busy with another notebook than the one asked for.
type OtherNotebookError struct {
	Notebook  string // the address that was opened; "" is Colab's empty notebook
	Connected bool   // false: its tab is connecting
}

func (e *OtherNotebookError) Error() string {
	name := e.Notebook
	if name == "" {
		name = EmptyNotebook
	}
	if e.Connected {
		return fmt.Sprintf("a tab that was opened with %q is connected, and there can be one: close that tab or disconnect it in Colab, then call again; or call without an address to use it", name)
	}
	return fmt.Sprintf("a tab with %q is connecting: call again in a few seconds", name)
}

// ToolError is an error that the page reported for a call.
type ToolError struct {
	Tool string
	Code int    // of JSON-RPC; 0 if the tool itself failed
	Text string // the page's words, bounded and safe to show
}

func (e *ToolError) Error() string {
	return fmt.Sprintf("Colab's page refused %s: %q", e.Tool, e.Text)
}

// MissingToolError says that the page has no tool of this name.
type MissingToolError struct {
	Tool string
	Has  []string // the names that the page has, bounded and safe to show
}

func (e *MissingToolError) Error() string {
	has := "it has no tools"
	if len(e.Has) > 0 {
		has = fmt.Sprintf("it has %q", e.Has)
	}
	return fmt.Sprintf("Colab's page has no tool %q, %s: reload the page and connect again; if that does not help, Google has changed the page: update colab-relay", e.Tool, has)
}
