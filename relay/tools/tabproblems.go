package tools

import (
	"context"
	"errors"

	"colabrelay/relay/client"
	"colabrelay/relay/hint"
	"colabrelay/relay/page"
)

// Codes of errors of Colab's page.
const (
	codeNoTab      = "no_tab"   // no tab is connected
	codeTabLost    = "tab_lost" // in the call
	codeTabRefused = hint.CodePageRefused
	codeNotRun     = "not_run" // the page answered without running the cell
)

var noTab = &Problem{
	Code: codeNoTab, Message: "no tab of Colab is connected",
	Hint: "Call open_colab_browser_connection first, then call again. For a notebook file give notebook_path.",
}

// tabHints are what to do about an error that the page reported.
const (
	refusedHint = "Read the cells with get_cells, then correct the call. If the message is about signing in, a runtime or a GPU, ask the user to do in the browser what it says."
	missingHint = "Ask the user to reload the page, then call open_colab_browser_connection. If that does not help, ask the user to update colab-relay; notebook files still work with notebook_path."
	lostHint    = "Call open_colab_browser_connection, then get_cells, before you repeat anything: a cell may have been changed, and one that ran may still be running."
	silentHint  = "Ask the user to look at the tab: a dialog may be open there, or the computer may have suspended the tab. Then read the cells with get_cells before you repeat anything."
	otherHint   = "Ask the user which notebook is meant. For the one in the connected tab, call without notebook_url."
)

// tabProblem translates an error of a call that acts on the tab.
func (c *call) tabProblem(err error) *Problem {
	var (
		refused *page.ToolError
		missing *page.MissingToolError
	)
	switch {
	case errors.As(err, &refused):
		return &Problem{Code: codeTabRefused, Message: err.Error(), Hint: refusedHint}
	case errors.As(err, &missing):
		return &Problem{Code: codeTabRefused, Message: err.Error(), Hint: missingHint}
	case errors.Is(err, page.ErrTabLost), errors.Is(err, page.ErrClosed):
		return &Problem{Code: codeTabLost, Message: err.Error(), Hint: lostHint}
	case errors.Is(err, context.DeadlineExceeded):
		return &Problem{Code: string(client.KindTimeout), Message: err.Error(), Hint: silentHint}
	}
	p := c.notebookProblem(err)
	if p.Code == codeInternal { // what the page answered cannot be read
		return &Problem{Code: codeTabRefused, Message: err.Error(), Hint: missingHint}
	}
	return p
}
