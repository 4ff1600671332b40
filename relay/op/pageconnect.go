package op

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"colabrelay/relay/bridge"
	"colabrelay/relay/browser"
	"colabrelay/relay/page"
	"colabrelay/relay/pairing"
	"colabrelay/relay/plain"
	"colabrelay/relay/runtimes"
	"colabrelay/shared/contract"
)

type openArgs struct {
	URL      string `json:"notebook_url" default:"" max:"2000" doc:"Of a notebook in Colab; omitted: the connected tab, or an empty notebook." arg:"[NOTEBOOK_URL]"`
	Executor bool   `json:"start_executor" default:"false" doc:"Also start and pair the executor on the page's VM, for the other tools." flag:"start-executor" usage:"also start the executor on the VM of the page, and pair this computer with it"`
	// The next two are for Executor.
	Runtime    string `json:"runtime_name" was:"runtime" default:"" doc:"With start_executor: the name to pair it under; omit for a free one." flag:"name" usage:"with --start-executor, the 'NAME' of the runtime (default a free one)"`
	StatusCell bool   `json:"status_cell" default:"false" doc:"With start_executor: leave a cell running, so that Colab does not count the page as idle." flag:"status-cell" usage:"with --start-executor, leave a cell that runs as long as the executor, so that Colab does not count the page as idle; stopping it stops the executor"`
	ByHand     bool   `json:"-" default:"false" flag:"no-browser" usage:"only print the link, and wait until you opened it or press Ctrl-C"`
}

// runtime makes openArgs targeted: a tab belongs to no runtime.
func (openArgs) runtime() string { return "" }

// PageConnection is the answer of open_colab_browser_connection.
type PageConnection struct {
	Connected   bool     `json:"connected"`
	Waiting     bool     `json:"waiting"`              // the same call waits on
	URL         string   `json:"url,omitempty"`        // while no tab is connected; it holds a token
	CellCount   int      `json:"cell_count,omitempty"` // for a person, who tries the connection
	CodeCells   int      `json:"code_cells,omitempty"`
	Executor    string   `json:"executor,omitempty"` // name of the runtime that was paired
	NextCommand string   `json:"next_command,omitempty"`
	Notes       []string `json:"notes,omitempty"`
}

// StartExecutor starts an executor on the VM of the notebook in a tab and pairs it. It goes on
// past ctx, with *bridge.StartingError; the same call joins it. step gets what it does, in a
// line.
type StartExecutor func(ctx context.Context, tab bridge.Notebook, r bridge.Request, step func(string)) (bridge.Paired, error)

func openConnection() Operation {
	return operation(spec{
		title: "Connect to Colab's page",
		Command: Command{Setting: "RELAY_PAGE_PORT",
			Short: "Open a notebook in Colab and try the connection",
			Long: "Open a notebook in Colab, wait until its tab is connected, and say what an agent would find there. The connection was a test then, and ends: an agent connects a tab of its own.\n" +
				"Without NOTEBOOK_URL, Colab's empty notebook is opened. The address of any notebook in Colab works: copy it from the browser's address bar.\n" +
				"With --start-executor, the executor is also started on the notebook's VM and paired, without copy and paste: `colab-relay run` and agents then use that VM. Its tunnel uses NGROK_AUTHTOKEN of this command's environment, else the secret of that name in Colab, else cloudflared.\n" +
				"The link to open is always printed. If your browser is on another computer, forward a port to this one, as with `ssh -L 8765:127.0.0.1:8765 HOST`, and use --page-port 8765 --no-browser.",
			Examples: "  colab-relay page open\n" +
				"  colab-relay page open https://colab.research.google.com/drive/1A2b3C\n" +
				"  colab-relay page open --start-executor\n" +
				"  colab-relay page open --page-port 8765 --no-browser    # the browser is on another computer"},
		description: "Use it to work in the notebook that the user sees in Colab: it opens the browser, where the user confirms the connection. Then call get_cells, update_cell, run_code_cell and so on without notebook_path. While it waits, call again. Show the user the URL if no page opens; it is for this user alone.",
	}, func(ctx context.Context, c *call, args openArgs) (*PageConnection, error) {
		return c.openPage(ctx, args)
	})
}

// openPage connects a tab, and starts an executor through it if asked.
func (c *call) openPage(ctx context.Context, args openArgs) (*PageConnection, error) {
	c.target = runtimes.Runtime{}
	if err := page.CheckNotebookURL(args.URL); err != nil {
		return nil, &ArgumentError{"notebook_url", "NOTEBOOK_URL", err}
	}
	if !args.Executor && (args.Runtime != "" || args.StatusCell) {
		return nil, &ArgumentError{"runtime_name and status_cell", "name and --status-cell", errors.New("they need " + c.either("start_executor", "--start-executor"))}
	}
	colab, start := c.cfg.Page, c.cfg.StartExecutor
	switch {
	case c.person != nil:
		colab = page.New(page.Config{Port: c.person.PagePort, Open: c.opener(args.ByHand), Version: c.cfg.Version})
		defer colab.Close()
		b := c.person.Bridge()
		defer b.Close() // while the tab is still connected
		start = b.Start
	case colab == nil:
		return nil, notServed
	}
	waiting, done := c.within(ctx)
	defer done()
	tab, err := c.connectPage(waiting, colab, args)
	switch {
	case err != nil && errors.Is(ctx.Err(), context.Canceled):
		return nil, c.ended(ctx)
	case err != nil && c.person != nil:
		return nil, err
	case err != nil:
		got := &PageConnection{}
		return got, got.notConnected(c, err)
	}
	got := &PageConnection{Connected: true}
	if c.person != nil {
		if err := got.count(ctx, tab); err != nil {
			return nil, err
		}
	}
	if args.Executor {
		err = got.startExecutor(ctx, waiting, c, args, tab, start)
	}
	if err != nil && c.person != nil {
		return nil, err
	}
	return got, err
}

// ended is the error of a call that its reader cancelled.
func (c *call) ended(ctx context.Context) error {
	if c.person != nil {
		return context.Cause(ctx)
	}
	return cancelledProblem
}

var notServed = &Problem{Code: codeNotConfigured, Message: "this relay has no place for a tab of Colab", Hint: "Ask the user to restart the MCP host."}

// connectPage waits for the tab. A link that a person opens by hand is renewed when its time is
// over; a second window of the browser would help nobody.
func (c *call) connectPage(ctx context.Context, colab *page.Page, args openArgs) (*page.Tab, error) {
	if c.person == nil {
		return colab.Connect(ctx, page.Request{NotebookURL: args.URL}, c.showStep)
	}
	for {
		tab, err := colab.Connect(ctx, page.Request{NotebookURL: args.URL}, nil)
		waits, waiting := errors.AsType[*page.WaitingError](err)
		_, late := errors.AsType[*page.NoTabError](err)
		switch {
		case ctx.Err() != nil || !waiting && !late:
			return tab, err
		case waiting:
			c.askForHand(waits, args.ByHand)
			args.ByHand = true
		case !args.ByHand:
			return nil, fmt.Errorf("%w; run the command again to get a new link", err)
		}
	}
}

// opener shows a person the link, and opens it in the browser unless the person does.
func (c *call) opener(byHand bool) func(context.Context, string) error {
	return func(ctx context.Context, address string) error {
		if byHand {
			return errByHand
		}
		fmt.Fprintf(c.person.Streams.Err, "Opening Colab in your browser. If no page appears, open this link, which is for you alone:\n  %s\n", address)
		if err := browser.Open(ctx, address); err != nil {
			return err
		}
		fmt.Fprintln(c.person.Streams.Err, confirmIt)
		return nil
	}
}

// errByHand is why no browser is opened for a person who opens the link.
var errByHand = errors.New("the link is opened by hand")

const confirmIt = "Colab asks you to confirm the connection. Waiting for that; Ctrl-C ends it ..."

// askForHand asks a person to open the link, which was shown before unless byHand.
func (c *call) askForHand(w *page.WaitingError, byHand bool) {
	out, port := c.person.Streams.Err, ""
	if u, err := url.Parse(w.URL); err == nil {
		port = u.Query().Get("p") // to which the page connects
	}
	if byHand {
		fmt.Fprintf(out, "Open this link in your browser, within a minute; it is for you alone:\n  %s\n", w.URL)
	} else {
		fmt.Fprintf(out, "note: %s\n", plain.Line(w.NoBrowser()))
	}
	fmt.Fprintf(out, "If the browser is on another computer, first run there: ssh -L %[1]s:127.0.0.1:%[1]s HOST    (HOST is this computer)\n%[2]s\n", port, confirmIt)
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

// notConnected completes a model's answer about a tab that is not there, and says why; nil if the
// same call waits on.
func (p *PageConnection) notConnected(c *call, err error) error {
	if waits, ok := errors.AsType[*page.WaitingError](err); ok {
		p.Waiting, p.URL, p.NextCommand, p.Notes = true, waits.URL, c.again(), []string{err.Error()}
		return nil
	}
	if late, ok := errors.AsType[*page.NoTabError](err); ok {
		p.URL, p.NextCommand = late.URL, c.again()
		return &Problem{Code: codeNoTab, Message: err.Error(), Hint: "Ask the user to look at the browser, and give the user url to open there. Then call again."}
	}
	if _, ok := errors.AsType[*page.OtherNotebookError](err); ok {
		return &Problem{Code: string(contract.CodeConflict), Message: err.Error(), Hint: "Ask the user which notebook is meant. For the one in the connected tab, call without notebook_url."}
	}
	if errors.Is(err, page.ErrClosed) {
		return err
	}
	return &Problem{Code: codeNoTab, Message: err.Error(), Hint: "Call again. If the message names a port, the user can set RELAY_PAGE_PORT to another one in the MCP host's configuration and restart the host."}
}

// cellsTime is how long a connected tab may take to list its cells.
const cellsTime = 30 * time.Second

// count counts the cells of the notebook in a tab.
func (p *PageConnection) count(ctx context.Context, tab *page.Tab) error {
	ctx, cancel := context.WithTimeout(ctx, cellsTime)
	defer cancel()
	cells, err := tab.Cells(ctx, 0, -1, false)
	if err != nil {
		return fmt.Errorf("the tab is connected, but does not list its cells: %w", err)
	}
	p.CellCount = len(cells)
	for _, cell := range cells {
		if cell.Type == "code" {
			p.CodeCells++
		}
	}
	return nil
}

// startExecutor starts an executor on the VM of a tab's notebook and pairs it. waiting ends when
// this call may wait no longer.
func (p *PageConnection) startExecutor(ctx, waiting context.Context, c *call, args openArgs, tab *page.Tab, start StartExecutor) error {
	paired, err := start(waiting, tab, bridge.Request{Name: args.Runtime, StatusCell: args.StatusCell}, c.step)
	starting, goesOn := errors.AsType[*bridge.StartingError](err)
	switch {
	case err != nil && errors.Is(ctx.Err(), context.Canceled):
		return c.ended(ctx)
	case goesOn:
		p.Waiting, p.NextCommand, p.Notes = true, c.again(), []string{starting.Error()}
		return nil
	case errors.Is(err, pairing.ErrBadName):
		return &ArgumentError{"runtime_name", "name", err}
	case err != nil:
		return err
	}
	c.target = runtimes.Runtime{Name: paired.Runtime.Name, URL: paired.Runtime.URL}
	p.Executor, p.Notes = paired.Runtime.Name, paired.Notes
	if paired.Already {
		p.Notes = append([]string{"The executor of an earlier start runs on this VM, so no other one was started."}, p.Notes...)
	}
	return nil
}

func (p *PageConnection) text(w *words) {
	connected := "Connected to the notebook in Colab"
	if w.person != nil {
		connected += fmt.Sprintf(", which has %s (%d with code)", plain.Count(p.CellCount, "cell"), p.CodeCells)
	}
	switch {
	case p.Executor != "":
		fmt.Fprintf(w, "%s, and the executor on its VM is paired as runtime %q.\n", connected, p.Executor)
	case p.Connected && p.Waiting:
		fmt.Fprintf(w, "%s. The executor is still being started. Next step: %s\n", connected, p.NextCommand)
	case p.Connected:
		fmt.Fprintf(w, "%s.%s\n", connected, w.either(" The tools for cells act on it when notebook_path is omitted; begin with get_cells.", ""))
	case p.URL != "": // else the problem says why there is no link
		fmt.Fprintf(w, "No tab of Colab is connected. The user opens this URL, if no page has opened: %s\nNext step: %s\n", p.URL, p.NextCommand)
	}
	w.notes(p.Notes)
	switch {
	case w.person == nil:
	case p.Executor != "":
		w.note("the connection with the page ends now; the executor runs on")
	default:
		w.note("this was a test, and the connection ends now; an agent connects a tab with its tool open_colab_browser_connection")
	}
}
