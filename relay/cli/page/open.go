package page

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"colabrelay/relay/bridge"
	"colabrelay/relay/browser"
	"colabrelay/relay/cli"
	"colabrelay/relay/config"
	"colabrelay/relay/page"
	"colabrelay/relay/plain"
	"colabrelay/relay/terminal"
)

// cellsTime is how long a connected tab may take to list its cells.
const cellsTime = 30 * time.Second

func openCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	o := opener{set: set, std: std}
	cmd := &cobra.Command{
		Use:   "open [NOTEBOOK_URL]",
		Short: "Open a notebook in Colab and try the connection",
		Long: "Open a notebook in Colab, wait until its tab is connected, and say what an agent would find there. The connection was a test then, and ends: an agent connects a tab of its own.\n" +
			"Without NOTEBOOK_URL, Colab's empty notebook is opened. The address of any notebook in Colab works: copy it from the browser's address bar.\n" +
			"With --start-executor, the executor is also started on the notebook's VM and paired, without copy and paste: `colab-relay run` and agents then use that VM. Its tunnel uses NGROK_AUTHTOKEN of this command's environment, else the secret of that name in Colab, else cloudflared.\n" +
			"The link to open is always printed. If your browser is on another computer, forward a port to this one, as with `ssh -L 8765:127.0.0.1:8765 HOST`, and use --page-port 8765 --no-browser.",
		Example: "  colab-relay page open\n" +
			"  colab-relay page open https://colab.research.google.com/drive/1A2b3C\n" +
			"  colab-relay page open --start-executor\n" +
			"  colab-relay page open --page-port 8765 --no-browser    # the browser is on another computer",
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cli.Arguments(0, 1)(cmd, args); err != nil || len(args) == 0 {
				return err
			}
			if err := page.CheckNotebookURL(args[0]); err != nil {
				return cli.AsUsage(err)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				o.notebook = args[0]
			}
			if err := o.start.check(); err != nil {
				return err
			}
			return o.run(cmd.Context())
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	set.AddFlags(cmd.Flags(), "RELAY_PAGE_PORT")
	cmd.Flags().BoolVar(&o.byHand, "no-browser", false, "only print the link, and wait until you opened it or press Ctrl-C")
	o.start.addFlags(cmd.Flags())
	cli.AddJSONFlag(cmd, &o.json)
	return cmd
}

// opener is a call of `colab-relay page open`.
type opener struct {
	set      *config.Settings
	std      terminal.Streams
	notebook string
	json     bool
	byHand   bool // the person opens the link
	start    pageStart
}

// openedPage is the answer of `colab-relay page open`.
type openedPage struct {
	Port      int `json:"port"`
	CellCount int `json:"cell_count"`
	CodeCells int `json:"code_cells"`

	Executor *startedExecutor `json:"executor,omitempty"`
}

func (o *opener) run(ctx context.Context) error {
	cfg := config.Load(*o.set)
	if err := cfg.Err(); err != nil {
		return err
	}
	p := page.New(page.Config{Port: cfg.PagePort, Open: o.open, Version: cli.Version})
	defer p.Close()
	tab, err := o.connect(ctx, p)
	if err != nil {
		return err
	}
	listing, cancel := context.WithTimeout(ctx, cellsTime)
	defer cancel()
	cells, err := tab.Cells(listing, 0, -1, false)
	if err != nil {
		return fmt.Errorf("the tab is connected, but does not list its cells: %w", err)
	}
	answer := openedPage{Port: p.State().Port, CellCount: len(cells)}
	for _, cell := range cells {
		if cell.Type == "code" {
			answer.CodeCells++
		}
	}
	if o.start.executor {
		if answer.Executor, err = o.startExecutor(ctx, cfg, tab); err != nil {
			return err
		}
	}
	return o.print(answer)
}

// connect waits for the tab. A link that the person opens by hand is renewed when its time is
// over; a second window of the browser would help nobody.
func (o *opener) connect(ctx context.Context, p *page.Page) (*page.Tab, error) {
	for {
		tab, err := p.Connect(ctx, page.Request{NotebookURL: o.notebook}, nil)
		waits, waiting := errors.AsType[*page.WaitingError](err)
		_, late := errors.AsType[*page.NoTabError](err)
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case waiting:
			o.askForHand(waits)
		case late && !o.byHand:
			return nil, fmt.Errorf("%w; run the command again to get a new link", err)
		case !late:
			return tab, err
		}
	}
}

// open shows the link, and opens it in the browser.
func (o *opener) open(ctx context.Context, address string) error {
	if o.byHand {
		return errByHand
	}
	fmt.Fprintf(o.std.Err, "Opening Colab in your browser. If no page appears, open this link, which is for you alone:\n  %s\n", address)
	if err := browser.Open(ctx, address); err != nil {
		return err
	}
	fmt.Fprintln(o.std.Err, confirmIt)
	return nil
}

// errByHand is why no browser is opened for a person who opens the link.
var errByHand = errors.New("the link is opened by hand")

const confirmIt = "Colab asks you to confirm the connection. Waiting for that; Ctrl-C ends it ..."

// askForHand asks the person to open the link, which open has shown if it was called.
func (o *opener) askForHand(w *page.WaitingError) {
	if o.byHand {
		fmt.Fprintf(o.std.Err, "Open this link in your browser, within a minute; it is for you alone:\n  %s\n", w.URL)
	} else {
		o.byHand = true
		fmt.Fprintf(o.std.Err, "note: %s\n", plain.Line(w.NoBrowser()))
	}
	fmt.Fprintf(o.std.Err, "If the browser is on another computer, first run there: ssh -L %[1]s:127.0.0.1:%[1]s HOST    (HOST is this computer)\n%[2]s\n", portOf(w.URL), confirmIt)
}

// portOf returns the port to which the page of a link connects.
func portOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Query().Get("p")
}

func (o *opener) print(answer openedPage) error {
	if o.json {
		return cli.PrintJSON(o.std.Out, answer)
	}
	_, err := fmt.Fprintf(o.std.Out, "Connected: the notebook has %s (%d with code).\n", plain.Count(answer.CellCount, "cell"), answer.CodeCells)
	if answer.Executor != nil {
		answer.Executor.print(o)
		fmt.Fprintln(o.std.Err, "The connection with the page ends now; the executor runs on.")
		return err
	}
	fmt.Fprintln(o.std.Err, "This was a test, and the connection ends now. An agent connects a tab with its tool open_colab_browser_connection.")
	return err
}

// pageStart are the flags of `colab-relay page open` that start an executor.
type pageStart struct {
	executor bool
	bridge.Request
}

func (s *pageStart) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&s.executor, "start-executor", false, "also start the executor on the page's VM, and pair this computer with it")
	fs.StringVar(&s.Name, "name", "", "with --start-executor, the `NAME` of the runtime (default a free one)")
	fs.BoolVar(&s.StatusCell, "status-cell", false, "with --start-executor, leave a cell that runs as long as the executor, so that Colab does not count the page as idle; stopping it stops the executor")
}

// check refuses flags that need another one.
func (s *pageStart) check() error {
	if !s.executor && (s.Name != "" || s.StatusCell) {
		return cli.Usagef("--name and --status-cell need --start-executor")
	}
	return nil
}

// startedExecutor is what `colab-relay page open --start-executor` adds to its answer.
type startedExecutor struct {
	Runtime string   `json:"runtime"`
	URL     string   `json:"colab_url"`
	Already bool     `json:"already_running"`
	Notes   []string `json:"notes"`
}

// startExecutor starts an executor on the VM of the tab's notebook and pairs it. It prints
// each step. If the person interrupts it, it removes its cell before it returns.
func (o *opener) startExecutor(ctx context.Context, cfg config.Config, tab *page.Tab) (*startedExecutor, error) {
	b := cli.NewBridge(*o.set, cfg.Pairings, nil)
	defer b.Close()
	paired, err := b.Start(ctx, tab, o.start.Request, func(step string) { fmt.Fprintln(o.std.Err, plain.Line(step)+" ...") })
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return &startedExecutor{Runtime: paired.Runtime.Name, URL: paired.Runtime.URL, Already: paired.Already, Notes: paired.Notes}, err
}

// print says what was started.
func (s *startedExecutor) print(o *opener) {
	did := "Started the executor and paired"
	if s.Already {
		did = "The executor already runs and is paired as"
	}
	fmt.Fprintf(o.std.Out, "%s %q with %s.\n", did, s.Runtime, plain.Line(s.URL))
	for _, note := range s.Notes {
		fmt.Fprintf(o.std.Err, "note: %s\n", plain.Line(note))
	}
}
