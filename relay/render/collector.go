// Package render turns the events of an execution into what a model reads: short text with
// progress bars in their final state, the head and tail of long output, a traceback
// without colours, and pictures of a size that a model accepts. It saves what does not fit
// in files and names them.
//
// It knows neither MCP nor HTTP: the caller passes a function that fetches blobs. Its
// memory is bounded whatever the code printed. Start reading at Collector.
package render

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"colabrelay/shared/contract"
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

// Fetch writes a blob to w.
type Fetch func(ctx context.Context, blob contract.Blob, w io.Writer) error

// Options of a Collector.
type Options struct {
	// Dir is the folder for pictures and full texts, created with the first of them. If it
	// is empty, nothing is saved.
	Dir string
	// From is the offset of the first event to be added.
	From int64
	// Instance is the executor's instance_id. Saved text of another instance is replaced.
	Instance string
	// New means that no call has read the execution before, so none has saved anything.
	New bool
	// Page makes the view one page of complete events instead of head and tail: add events
	// while there is Room. A page exceeds the limit if its first event alone does.
	Page bool
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
	errorText      string
	hasError       bool
	ename, evalue  string
	prompt         *Prompt
	cuts           int // events that the executor shortened
	cutNotes       []string
	clearNext      bool // clear_output with wait: clear before the next output

	saved     *saved // by earlier calls; nil if nothing was
	spoolFrom int64  // offset of the first event whose text is to be saved
}

// New returns an empty Collector. The caller must call View or Close in the end.
func New(opt Options) *Collector {
	dir := opt.Dir
	if opt.Limit == 0 {
		opt.Limit = defaultLimit
	}
	if opt.Page {
		dir = "" // a page omits nothing
	}
	c := &Collector{opt: opt, next: opt.From, spoolFrom: opt.From}
	if !opt.New {
		c.saved = loadSaved(opt.Dir, opt.Instance)
	}
	if c.saved != nil {
		c.spoolFrom = c.saved.To
	}
	if c.spoolFrom < opt.From { // the events between are missing, so the saved text cannot be extended
		dir = ""
	}
	c.stdout.start(c.saved.spoolFor(dir, contract.Stdout), opt.Limit)
	c.stderr.start(c.saved.spoolFor(dir, contract.Stderr), opt.Limit)
	c.last = &c.stdout
	return c
}

// Close removes temporary files. It may be called again and after View.
func (c *Collector) Close() {
	c.stdout.spool.discard()
	c.stderr.spool.discard()
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

// Prompt returns what the code asks, if the newest event is its request; nil otherwise.
func (c *Collector) Prompt() *Prompt { return c.prompt }

// Newest returns the newest line of text, for a progress message.
func (c *Collector) Newest() string { return c.last.folder.newest() }

// Add adds the next event. It ignores unknown types, because a newer executor may send them.
func (c *Collector) Add(ev contract.Event) {
	c.newest, c.next = ev.Offset, ev.Offset+1
	if ofOurs(ev) {
		return
	}
	c.noteCut(ev)
	if ev.Type != contract.EventInputRequest {
		c.prompt = nil
	}
	if c.clearNext && ev.Type != contract.EventClearOutput && ev.Type != contract.EventInputRequest {
		c.clear()
	}
	switch ev.Type {
	case contract.EventStream:
		c.stream(ev)
	case contract.EventDisplayData, contract.EventExecuteResult:
		c.displays.add(ev)
	case contract.EventUpdateDisplayData:
		c.displays.update(ev)
	case contract.EventError:
		c.hasError, c.ename, c.evalue = true, ev.EName, ev.EValue
		c.errorText = strings.Join(ev.Traceback, "\n")
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

// maxCuts bounds the notes on shortened events: a loop may produce thousands.
const maxCuts = 5

// noteCut records what the executor omitted from an event.
func (c *Collector) noteCut(ev contract.Event) {
	if ev.Cut == "" {
		return
	}
	if c.cuts++; c.cuts <= maxCuts {
		c.cutNotes = append(c.cutNotes, fmt.Sprintf("omitted from the output at offset %d: %s", ev.Offset, clipLine(ev.Cut, 2*leastRunes)))
	}
}

// viewCuts adds the notes on shortened events.
func (c *Collector) viewCuts(v *View) {
	v.Notes = append(v.Notes, c.cutNotes...)
	if more := c.cuts - len(c.cutNotes); more > 0 {
		v.Notes = append(v.Notes, fmt.Sprintf("further outputs with omissions: %d", more))
	}
}

// ofOurs reports whether a display is intended for the relay itself.
func ofOurs(ev contract.Event) bool {
	for mime := range ev.Data {
		if strings.HasPrefix(mime, contract.OwnMIME) {
			return true
		}
	}
	return false
}

func (c *Collector) stream(ev contract.Event) {
	c.last = &c.stdout
	if ev.Name == contract.Stderr {
		c.last = &c.stderr
	}
	c.last.write(ev.Text, ev.Offset >= c.spoolFrom)
}

// gap marks output that the executor's log no longer contains.
func (c *Collector) gap(ev contract.Event) {
	line := fmt.Sprintf("[… %d bytes are no longer in the log …]\n", ev.Bytes)
	if ev.Bytes == 0 {
		line = "[… output is missing here: the log on the VM is damaged …]\n"
	}
	if c.last.folder.column() > 0 {
		line = "\n" + line
	}
	c.last.write(line, ev.Offset >= c.spoolFrom)
}

func (c *Collector) clear() {
	c.clearNext = false
	c.stdout.clear()
	c.stderr.clear()
	c.displays.clear()
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

// View is the readable form of an execution.
type View struct {
	Stdout, Stderr string
	Result         string // text of the last execute_result
	HasResult      bool
	Error          *Raised // the Python exception among these events
	Outputs        []Output
	Pictures       []Picture // to show; Outputs may have more
	Files          []File
	Prompt         *Prompt // of input(), while the newest event is its request
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
	Kind string `json:"kind"` // stdout, stderr, result, traceback, picture or output
	Path string `json:"path"` // absolute path on the machine the relay runs on
}

// View renders the collected events, saves what does not fit, and closes the Collector.
func (c *Collector) View(ctx context.Context, fetch Fetch) View {
	defer c.Close()
	v := View{NextOffset: c.next, Prompt: c.prompt}
	c.viewCuts(&v)
	p := presenter{dir: c.opt.Dir, fetch: fetch, view: &v, listed: c.listed()}
	p.present(ctx, &c.displays)
	trace := Plain(c.errorText)
	room := c.share(&v, trace)
	c.viewStreams(&v, room)
	if c.hasError {
		most := max(2*leastRunes, c.opt.Limit/6)
		v.Error = &Raised{EName: clipLine(c.ename, most), EValue: clipLine(Plain(c.evalue), most)}
		v.Error.Traceback = c.fit(&v, "traceback", trace, room.traceback)
	}
	p.thin(room.outputs)
	if v.HasResult {
		v.Result = c.fit(&v, "result", v.Result, room.result)
	}
	if more := len(v.Notes) - maxNotes; more > 0 {
		v.Notes = append(v.Notes[:maxNotes:maxNotes], fmt.Sprintf("further notes: %d", more))
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
	all := fairShares(left, c.stdout.rest(), c.stderr.rest(), runes(trace), runes(v.Result), outputs)
	return room{all[0], all[1], all[2], all[3], all[4]}
}

// fairShares divides total among needs: what one does not need, the others get.
func fairShares(total int, needs ...int) []int {
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
	var kinds []string
	for _, s := range []struct {
		kind   string
		stream *stream
		into   *string
		room   int
	}{{contract.Stdout, &c.stdout, &v.Stdout, room.stdout}, {contract.Stderr, &c.stderr, &v.Stderr, room.stderr}} {
		text, cut := s.stream.text(c.headEnd, s.room)
		*s.into = text
		if !cut {
			continue
		}
		v.Truncated, v.NextOffset = true, c.headEnd
		kinds = append(kinds, s.kind)
	}
	switch {
	case c.opt.Page && c.HasSaved():
		c.nameSaved(v)
	case len(kinds) > 0, !c.opt.Page && c.saved != nil:
		c.saveStreams(v, kinds)
	}
}

// nameSaved names the files of the texts that this page is a part of.
func (c *Collector) nameSaved(v *View) {
	for _, kind := range []string{contract.Stdout, contract.Stderr} {
		if c.saved.Bytes[kind] > 0 {
			v.saved(kind, filepath.Join(c.opt.Dir, c.saved.file(kind)), nil)
		}
	}
}

// saveStreams saves the texts of both streams and names the files of the given kinds.
func (c *Collector) saveStreams(v *View, kinds []string) {
	text, err := c.saved, error(nil)
	if c.spoolFrom >= c.opt.From {
		text, err = c.extend()
	}
	for _, kind := range kinds {
		path := ""
		if err == nil {
			path = filepath.Join(c.opt.Dir, text.file(kind))
		}
		v.saved(kind, path, err)
	}
}

// fit shortens text to most runes, or a few more. If that omits something, it saves the
// whole text.
func (c *Collector) fit(v *View, kind, text string, most int) string {
	short, cut := Clip(text, max(leastRunes, most))
	if !cut {
		return text
	}
	name := fmt.Sprintf("%s-%d.txt", kind, c.next)
	path, err := SaveFile(c.opt.Dir, name, func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	})
	v.saved(kind, path, err)
	return short
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
