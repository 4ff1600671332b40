package tools

import (
	"context"
	"errors"
	"fmt"

	"colabrelay/relay/page"
	"colabrelay/relay/runtimes"
	"colabrelay/shared/contract"
)

type openArgs struct {
	URL      string `json:"notebook_url" default:"" max:"2000" doc:"Of a notebook in Colab; omitted: the connected tab, or an empty notebook."`
	Executor bool   `json:"start_executor" default:"false" doc:"Also start and pair the executor on the page's VM, for the other tools."`
	// The rest is for Executor.
	Runtime    string `json:"runtime_name" was:"runtime" default:"" doc:"With start_executor: the name to pair it under; omit for a free one."`
	StatusCell bool   `json:"status_cell" default:"false" doc:"With start_executor: leave a cell running, so that Colab does not count the page as idle."`
}

// runtime makes openArgs targeted: a tab belongs to no runtime.
func (openArgs) runtime() string { return "" }

// PageConnection is the answer of open_colab_browser_connection.
type PageConnection struct {
	Connected   bool     `json:"connected"`
	Waiting     bool     `json:"waiting"`            // the same call waits on
	URL         string   `json:"url,omitempty"`      // while no tab is connected; it holds a token
	Executor    string   `json:"executor,omitempty"` // name of the runtime that was paired
	NextCommand string   `json:"next_command,omitempty"`
	Notes       []string `json:"notes,omitempty"`
}

func openConnection() tool {
	return define(spec{
		name: "open_colab_browser_connection", title: "Connect to Colab's page",
		command:     Command{Name: "page open", Own: true},
		summary:     "opens Colab in the user's browser and connects to its notebook; get_cells and the other tools for cells then work there without `notebook_path`; with `start_executor`, also starts and pairs the executor on the page's VM",
		description: "Use it to work in the notebook that the user sees in Colab: it opens the browser, where the user confirms the connection. Then call get_cells, update_cell, run_code_cell and so on without notebook_path. While it waits, call again. Show the user the URL if no page opens; it is for this user alone.",
		idempotent:  true, openWorld: true, local: true,
	}, func(ctx context.Context, c *call, args openArgs) (*PageConnection, *Problem) {
		c.target = runtimes.Runtime{}
		switch err := page.CheckNotebookURL(args.URL); {
		case c.cfg.Page == nil:
			return nil, notServed
		case err != nil:
			return nil, &Problem{Code: codeBadRequest, Message: "bad arguments: " + err.Error(), Hint: "Ask the user for the address of the notebook in Colab, or omit notebook_url for an empty notebook."}
		case !args.Executor && (args.Runtime != "" || args.StatusCell):
			return nil, &Problem{Code: codeBadRequest, Message: "bad arguments: runtime_name and status_cell need start_executor", Hint: "Give start_executor too, or omit them."}
		case args.Executor && c.cfg.StartExecutor == nil:
			return nil, &Problem{Code: codeBadRequest, Message: "bad arguments: this relay cannot start an executor", Hint: "Call without start_executor. The user can start the executor with the cell that `colab-relay bootstrap` prints."}
		}
		return c.connectPage(ctx, args)
	})
}

var notServed = &Problem{Code: codeNotConfigured, Message: "this relay has no place for a tab of Colab", Hint: "Ask the user to restart the MCP host."}

// connectPage waits for the tab, and then for the executor, as long as this call may.
func (c *call) connectPage(ctx context.Context, args openArgs) (*PageConnection, *Problem) {
	waiting, done := context.WithTimeout(ctx, c.waitBudget())
	defer done()
	tab, err := c.cfg.Page.Connect(waiting, page.Request{NotebookURL: args.URL}, c.showStep)
	if err != nil && errors.Is(ctx.Err(), context.Canceled) {
		return nil, cancelledProblem
	}
	got := &PageConnection{Connected: err == nil}
	if err != nil {
		return got, got.notConnected(err, args, c)
	}
	if !args.Executor {
		return got, nil
	}
	return got, c.startExecutor(ctx, waiting, tab, args, got)
}

// stepLines are what the person at the host reads about the steps.
var stepLines = map[page.Step]string{
	page.Listening: "waiting for the browser to open Colab",
	page.Opened:    "waiting for the user to confirm the connection in Colab's page",
	page.Connected: "the notebook in Colab is connected",
}

func (c *call) showStep(s page.Step) {
	c.progress.milestone(stepLines[s], amount{int64(s), page.StepCount})
}

// notConnected completes the answer about a tab that is not there, and says why; nil if the same
// call waits on.
func (p *PageConnection) notConnected(err error, args openArgs, c *call) *Problem {
	var (
		waits *page.WaitingError
		late  *page.NoTabError
		other *page.OtherNotebookError
	)
	switch {
	case errors.As(err, &waits):
		p.Waiting, p.URL, p.NextCommand = true, waits.URL, args.again()
		p.Notes = []string{err.Error()}
		return nil
	case errors.As(err, &late):
		p.URL, p.NextCommand = late.URL, args.again()
		return &Problem{Code: codeNoTab, Message: err.Error(), Hint: "Ask the user to look at the browser, and give the user url to open there. Then call again."}
	case errors.As(err, &other):
		return &Problem{Code: string(contract.CodeConflict), Message: err.Error(), Hint: "Ask the user which notebook is meant. For the one in the connected tab, call without notebook_url."}
	case errors.Is(err, page.ErrClosed):
		return c.tabProblem(err)
	}
	return &Problem{Code: codeNoTab, Message: err.Error(), Hint: "Call again. If the message names a port, the user can set RELAY_PAGE_PORT to another one in the MCP host's configuration and restart the host."}
}

// again is the call that waits on.
func (a openArgs) again() string {
	return command("open_colab_browser_connection", "notebook_url", a.URL, "start_executor", a.Executor, "runtime_name", a.Runtime, "status_cell", a.StatusCell)
}

func (p *PageConnection) text(b *words) {
	switch {
	case p.Executor != "":
		fmt.Fprintf(b, "Connected to the notebook in Colab, and the executor on its VM is paired as runtime %q.\n", p.Executor)
	case p.Connected && p.Waiting:
		fmt.Fprintf(b, "Connected to the notebook in Colab. The executor is still being started. Next step: %s\n", p.NextCommand)
	case p.Connected:
		b.WriteString("Connected to the notebook in Colab. The tools for cells act on it when notebook_path is omitted; begin with get_cells.\n")
	case p.URL != "": // else the problem says why there is no link
		fmt.Fprintf(b, "No tab of Colab is connected. The user opens this URL, if no page has opened: %s\nNext step: %s\n", p.URL, p.NextCommand)
	}
	b.notes(p.Notes)
}
