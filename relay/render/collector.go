// Package render turns the events of an execution into what a model reads: short text with
// progress bars in their final state, the head and tail of long output, a traceback
// without colours, and pictures of a size that a model accepts. It saves what does not fit
// in files and names them.
//
// It knows neither MCP nor HTTP: the caller passes a function that fetches blobs. Its
// memory is bounded whatever the code printed. Start reading at Collector.
package render

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"colabrelay/relay/output"
	"colabrelay/relay/plain"
	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/filename"
	"colabrelay/shared/memory"
)

// Bounds of a View.
const (
	defaultLimit = 5_000 // characters of all texts together
	headPart     = 0.4   // of the limit, for the beginning of both streams
	leastRunes   = 100   // what a result, traceback or output gets at least
	leastPage    = 4     // a page's other texts get at least the limit by this number
	textRunes    = 500   // the text of one display output
	maxOutputs   = 100   // the newest display outputs are kept
	maxNotes     = 12
)

// Options of a Collector.
type Options struct {
	// Dir is the folder for pictures and full texts, created with the first of them. If it
	// is empty, nothing is saved.
	Dir string
	// From is the offset of the first event to be added.
	From int64
	// Page makes the view one page of complete events instead of head and tail: add events
	// while there is Room. A page exceeds the limit if its first event alone does.
	Page bool
	// Unpaged says that no call can page through the execution, so no text names one.
	Unpaged bool
	// Holding, unless nil, takes the turn of calls whose answer has pictures before the first one
	// is read. The caller ends it when the answer was sent.
	Holding *memory.Holding
	// Limit is how many characters (runes) all texts of the view have together, not counting
	// markers; 0 means 5,000. If some are longer, each gets a fair share.
	Limit int
}

// Collector collects the events of one execution, in order, from Options.From on. It is not
// safe for concurrent use.
type Collector struct {
	opt            Options
	stdout, stderr stream
	last           *stream // the one written to last
	newest         int64   // offset of the newest event added
	next           int64   // offset after it
	headEnd        int64   // offset of the first event that the head does not contain completely
	complete       bool
	displays       displays
	failed         *contract.Event // the last error
	earlierErrors  bounded.Tail    // the tracebacks before it, which the code displayed
	prompt         *Prompt
	cuts           int // events that the executor shortened
	cutNotes       []string
	widgetLine     string // the last line of a widget's text, if that is newer than what was printed
	clearNext      bool   // clear_output with wait: clear before the next output
}

// New returns an empty Collector. The caller must call View or Close in the end.
func New(opt Options) *Collector {
	if opt.Limit == 0 {
		opt.Limit = defaultLimit
	}
	c := &Collector{opt: opt, next: opt.From, earlierErrors: bounded.Tail{Max: maxText}}
	if !opt.Page { // a page omits nothing
		c.stdout.whole.dir, c.stderr.whole.dir = opt.Dir, opt.Dir
	}
	c.stdout.start(opt.Limit)
	c.stderr.start(opt.Limit)
	c.last = &c.stdout
	return c
}

// Close frees memory, and removes what was written and is not named. It may be called again and
// after View.
func (c *Collector) Close() {
	c.displays.free()
	c.stdout.whole.discard()
	c.stderr.whole.discard()
}

// Full reports whether a page is complete.
func (c *Collector) Full() bool { return c.opt.Page && c.complete }

// Room reports whether the next event belongs to this page.
func (c *Collector) Room(ev contract.Event) bool {
	if !c.opt.Page {
		return true
	}
	shown := c.shown()
	return !c.complete && (shown == 0 || shown+runes(Plain(ev.Text)) <= c.opt.Limit)
}

// shown returns how many characters of the streams a view would have.
func (c *Collector) shown() int { return c.stdout.shown() + c.stderr.shown() }

// Next returns the offset after the newest event.
func (c *Collector) Next() int64 { return c.next }

// Prompt returns what the code asked last; nil if it asked nothing. It may have been answered:
// only the run's status says whether it waits. Events after the request do not say that, because
// what the code printed before it may arrive later.
func (c *Collector) Prompt() *Prompt { return c.prompt }

// Newest returns the newest line of text, for a progress message.
func (c *Collector) Newest() string { return cmp.Or(c.widgetLine, c.last.folder.newest()) }

// Add adds the next event. It ignores unknown types, because a newer executor may send them.
func (c *Collector) Add(ev contract.Event) {
	c.newest, c.next = ev.Offset, ev.Offset+1
	if ev.OfRelay() {
		return
	}
	c.noteCut(ev)
	switch ev.Type {
	case contract.EventClearOutput, contract.EventInputRequest, contract.EventWidgetView, contract.EventWidgetState:
	default:
		if c.clearNext {
			c.clear()
		}
	}
	switch ev.Type {
	case contract.EventStream:
		c.stream(ev)
	case contract.EventDisplayData, contract.EventExecuteResult:
		c.displays.add(ev)
	case contract.EventUpdateDisplayData:
		c.displays.update(ev)
	case contract.EventWidgetView:
		c.displays.update(ev)
		lines := strings.Split(strings.TrimSpace(Plain(output.Text(ev.Data["text/plain"]))), "\n")
		c.widgetLine = lines[len(lines)-1]
	case contract.EventError:
		if c.failed != nil {
			fmt.Fprintf(&c.earlierErrors, "%s\n\n", strings.Join(c.failed.Traceback, "\n"))
		}
		c.failed = &ev
	case contract.EventInputRequest:
		c.prompt = &Prompt{Text: ev.Prompt, Offset: ev.Offset, Password: ev.Password}
	case contract.EventClearOutput:
		if c.clearNext = ev.Wait; !ev.Wait {
			c.clear()
		}
	case contract.EventGap:
		c.next = ev.Offset + max(ev.Events, 1)
		c.gap(ev)
	}
	c.freeze()
}

// noteCut records what the executor omitted from an event. A loop may produce thousands.
func (c *Collector) noteCut(ev contract.Event) {
	if ev.Cut == "" {
		return
	}
	if c.cuts++; c.cuts <= maxNotes {
		c.cutNotes = append(c.cutNotes, fmt.Sprintf("omitted from the output at offset %d: %s", ev.Offset, plain.Quote(clipLine(ev.Cut, 2*leastRunes))))
	}
}

func (c *Collector) stream(ev contract.Event) {
	c.widgetLine = ""
	c.last = &c.stdout
	if ev.Name == contract.Stderr {
		c.last = &c.stderr
	}
	c.write(ev.Text)
}

// write adds text of the newest event to the stream that was written to last.
func (c *Collector) write(text string) {
	c.last.whole.write(text)
	c.last.folder.write(text)
}

// gap marks output that the executor's log does not contain.
func (c *Collector) gap(ev contract.Event) {
	line := fmt.Sprintf("[… %d bytes are not in the log on the VM …]\n", ev.Bytes)
	if ev.Bytes == 0 {
		line = "[… output is missing here: the VM's disk was full or its log was damaged …]\n"
	}
	if c.last.folder.column() > 0 {
		line = "\n" + line
	}
	c.write(line)
}

func (c *Collector) clear() {
	c.clearNext = false
	c.stdout.start(c.opt.Limit)
	c.stderr.start(c.opt.Limit)
	c.displays.free()
	c.complete = false
}

// freeze completes the head once it is long enough. If the newest event does not fit into
// it completely, the next page starts with this event.
func (c *Collector) freeze() {
	if c.complete {
		return
	}
	if c.opt.Page {
		c.complete = c.shown() >= c.opt.Limit || c.displays.pageFull()
		return
	}
	most := int(headPart * float64(c.opt.Limit))
	if c.shown() < most && !c.displays.pageFull() {
		return
	}
	c.complete, c.headEnd = true, c.next
	other := &c.stdout
	if c.last == other {
		other = &c.stderr
	}
	room := max(0, most-other.shown())
	other.freeze(other.shown())
	if cut := c.last.freeze(room); cut {
		c.headEnd = c.newest
	}
}

// Bounds of how many characters the whole text of an answer about a run may have; Options.Limit is
// the part of its view. Hosts cut longer texts without saying where.
const (
	LeastTextLimit   = 1_000
	DefaultTextLimit = 6_000
	MostTextLimit    = 40_000
)

// View is the readable form of an execution.
type View struct {
	Stdout, Stderr string
	Result         string // text of the last execute_result
	HasResult      bool
	Error          *Raised // the Python exception among these events
	Outputs        []Output
	Pictures       []Picture // to show; Outputs may have more
	Files          []File
	Prompt         *Prompt // the last one of input(), even if it was answered
	// Truncated says that text in the middle was omitted. NextOffset is the offset of the
	// next page: after the head if text was omitted, otherwise after the newest event.
	Truncated  bool
	NextOffset int64
	// Notes describe what could not be shown or saved, and why.
	Notes []string
}

// Prompt is what code asks that waits in input().
type Prompt struct {
	Text     string // as the VM sent it
	Offset   int64  // of its event
	Password bool
}

// Raised is a Python exception.
type Raised struct {
	EName, EValue string
	Traceback     string // without colours
}

// File is a file saved on this machine.
type File struct {
	Kind   string `json:"kind"`             // stdout, stderr, result, traceback, picture or output
	Path   string `json:"path"`             // absolute path on the machine the relay runs on
	Pixels string `json:"pixels,omitempty"` // of a picture: its width and height, such as 640 × 480
}

// String returns the path, and the size of a picture.
func (f File) String() string {
	if f.Pixels == "" {
		return f.Path
	}
	return fmt.Sprintf("%s (%s pixels)", f.Path, f.Pixels)
}

// View renders the collected events, saves what does not fit, and closes the Collector.
func (c *Collector) View(ctx context.Context, fetch output.Fetch) View {
	defer c.Close()
	v := View{NextOffset: c.next, Prompt: c.prompt}
	p := presenter{Collector: c, fetch: fetch, view: &v}
	p.present(ctx)
	trace := ""
	if c.failed != nil {
		trace = Plain(c.earlierErrors.String()) + p.wholeTraceback(ctx)
	}
	if c.earlierErrors.Dropped() {
		trace = "[… errors that were displayed before are left out …]\n" + trace
	}
	room := c.share(&v, trace)
	c.viewStreams(&v, room)
	if c.failed != nil {
		most := max(2*leastRunes, c.opt.Limit/6)
		v.Error = &Raised{EName: clipLine(c.failed.EName, most), EValue: clipLine(Plain(c.failed.EValue), most)}
		v.Error.Traceback = p.traceback(ctx, trace, room.traceback)
	}
	p.thin(room.outputs)
	if v.HasResult {
		v.Result = p.fit("result", v.Result, room.result)
	}
	all := len(v.Notes) + c.cuts
	if v.Notes = append(v.Notes, c.cutNotes...); all > maxNotes {
		v.Notes = append(v.Notes[:maxNotes:maxNotes], fmt.Sprintf("further notes: %d", all-maxNotes))
	}
	return v
}

// room is how many characters the parts of a view may have. The heads of the streams are
// fixed before.
type room struct{ stdout, stderr, traceback, result, outputs int }

// share divides the limit, less what is fixed, among the parts.
func (c *Collector) share(v *View, trace string) room {
	outputs := 0
	for i := range v.Outputs {
		outputs += runes(v.Outputs[i].Text)
	}
	left := c.opt.Limit - c.stdout.fixed() - c.stderr.fixed()
	if c.opt.Page {
		left = max(left, c.opt.Limit/leastPage)
	}
	all := FairShares(left, c.stdout.rest(), c.stderr.rest(), runes(trace), runes(v.Result), outputs)
	return room{all[0], all[1], all[2], all[3], all[4]}
}

// FairShares divides total among needs: what one does not need, the others get.
func FairShares(total int, needs ...int) []int {
	given := make([]int, len(needs))
	for range needs {
		open := 0
		for i := range needs {
			if given[i] < needs[i] {
				open++
			}
		}
		if open == 0 {
			break
		}
		part := max(0, total) / open
		for i := range needs {
			more := min(part, needs[i]-given[i])
			given[i] += more
			total -= more
		}
	}
	return given
}

// listed returns how many display outputs the view describes.
func (c *Collector) listed() int {
	if c.opt.Page {
		return maxOutputs
	}
	return min(max(5, c.opt.Limit/200), maxOutputs)
}

func (c *Collector) viewStreams(v *View, room room) {
	for _, s := range []struct {
		kind   string
		stream *stream
		into   *string
		room   int
	}{{contract.Stdout, &c.stdout, &v.Stdout, room.stdout}, {contract.Stderr, &c.stderr, &v.Stderr, room.stderr}} {
		text, cut := s.stream.text(c.headEnd, s.room, c.opt.Unpaged)
		*s.into = text
		if !cut {
			continue
		}
		v.Truncated, v.NextOffset = true, c.headEnd
		path, err := s.stream.whole.save(s.kind, c.opt.From)
		v.saved(s.kind, path, err)
	}
}

// fit shortens text to most runes, or a few more. If that omits something, it saves the
// whole text.
func (p *presenter) fit(kind, text string, most int) string {
	short, cut := Clip(text, max(leastRunes, most))
	if !cut {
		return text
	}
	path, err := store(p.opt.Dir, kind, p.next, ".txt", int64(len(text)), func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	})
	p.view.saved(kind, path, err)
	return short
}

// traceback shortens the text of all errors to most runes, or a few more. If that omits something,
// it saves the whole text, or the last error alone if that is too long for memory.
func (p *presenter) traceback(ctx context.Context, text string, most int) string {
	whole := display{offset: p.failed.Offset, typ: p.failed.Type, data: p.failed.Data}
	if output.PayloadBytes(whole.data["text/plain"]) <= maxText {
		return p.fit("traceback", text, most)
	}
	if _, err := p.original(ctx, &whole, "text/plain", false); err != nil {
		p.note("the whole traceback could not be read: %v", err)
	}
	short, _ := Clip(text, max(leastRunes, most))
	return short
}

// wholeTraceback is the traceback without colours: all of one that was shortened on the VM, if it
// can be had.
func (p *presenter) wholeTraceback(ctx context.Context) string {
	if raw := p.failed.Data["text/plain"]; raw != nil {
		b := newEnds()
		if p.payload(ctx, "text/plain", raw, b) == nil {
			return Plain(b.text())
		}
	}
	return Plain(strings.Join(p.failed.Traceback, "\n"))
}

// saved records a file, or the reason why there is none.
func (v *View) saved(kind, path string, err error) {
	switch {
	case err == nil:
		v.Files = append(v.Files, File{Kind: kind, Path: path})
	case !errors.Is(err, errNoFolder):
		v.Notes = append(v.Notes, fmt.Sprintf("the %s could not be saved on this machine: %v", kind, err))
	}
}

// Executions is the folder of saved output below the one for saved files.
const Executions = "executions"

// Folder returns the folder for the output of an execution below the one for saved output. It
// is named by instance and id, because an id is unique on its instance only.
func Folder(saveDir, instance, id string) string {
	sum := sha256.Sum256([]byte(instance + "\x00" + id))
	return filepath.Join(saveDir, Executions, fmt.Sprintf("%s-%.6x", filename.ID(id), sum))
}

// whole is the text of a stream from the first event of a view on, for the case that the view
// shortens it. The zero value keeps nothing.
type whole struct {
	dir   string
	held  []byte
	file  *newFile // nil until held was full
	bytes int64    // of the file
	err   error    // the first one; nothing is saved after it
}

func (w *whole) write(text string) {
	if w.dir == "" || w.err != nil || w.bytes > maxStream {
		return
	}
	if w.held = append(w.held, text...); len(w.held) > maxHeld {
		w.flush()
	}
}

func (w *whole) flush() {
	if w.bytes += int64(len(w.held)); w.bytes > maxStream {
		w.held = append(w.held, "\n[… the rest was not saved …]\n"...)
	}
	if w.file == nil {
		w.file, w.err = create(w.dir, int64(len(w.held)))
	} else {
		w.err = usual.room(w.dir, int64(len(w.held)))
	}
	if w.err == nil {
		_, w.err = w.file.Write(w.held)
	}
	w.held = w.held[:0]
}

// save names the file, which then has all that was written.
func (w *whole) save(kind string, from int64) (string, error) {
	if w.err == nil && len(w.held) > 0 {
		w.flush()
	}
	file := w.file
	if w.file = nil; file == nil {
		return "", cmp.Or(w.err, errNoFolder)
	}
	return file.done(kind, from, ".txt", w.err)
}

// discard removes a file that was not named.
func (w *whole) discard() {
	if w.file != nil {
		_, _ = w.file.done("", 0, "", errNoFolder)
	}
	*w = whole{}
}
