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

// Bounds of a View, in characters (runes). Together they are below 40,000, because hosts
// truncate longer results without saying where.
const (
	headRunes   = 8 << 10 // the event that exceeds it completes the head
	tailRunes   = 4 << 10 // of each stream
	streamRunes = 30_000  // of one stream; events within the contract never reach it
	viewRunes   = 38_000  // of streams, result, traceback and other texts together
	leastRunes  = 2_000   // what a result or traceback gets at least
	textRunes   = 500     // the text of one display output
	maxOutputs  = 100     // the newest display outputs are kept
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
	// until Full.
	Page bool
}

// Collector collects the events of one execution, in order, from Options.From on. It is not
// safe for concurrent use.
type Collector struct {
	opt            Options
	stdout, stderr stream
	last           *stream // the one written to last
	next           int64   // offset after the newest event added
	headEnd        int64   // offset after the head, once it is complete
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
	c.stdout.start(c.saved.spoolFor(dir, contract.Stdout))
	c.stderr.start(c.saved.spoolFor(dir, contract.Stderr))
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

// Next returns the offset after the newest event.
func (c *Collector) Next() int64 { return c.next }

// Prompt returns what the code asks, if the newest event is its request; nil otherwise.
func (c *Collector) Prompt() *Prompt { return c.prompt }

// Newest returns the newest line of text, for a progress message.
func (c *Collector) Newest() string { return c.last.folder.newest() }

// Add adds the next event. It ignores unknown types, because a newer executor may send them.
func (c *Collector) Add(ev contract.Event) {
	c.next = ev.Offset + 1
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
const maxCuts = 10

// noteCut records what the executor omitted from an event.
func (c *Collector) noteCut(ev contract.Event) {
	if ev.Cut == "" {
		return
	}
	if c.cuts++; c.cuts <= maxCuts {
		c.cutNotes = append(c.cutNotes, fmt.Sprintf("omitted from the output at offset %d: %s", ev.Offset, clipLine(ev.Cut)))
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

// freeze completes the head once it is long enough. The head ends between two events, so
// that the next page can start there.
func (c *Collector) freeze() {
	if c.complete || c.stdout.shown()+c.stderr.shown() < headRunes && !c.displays.pageFull() {
		return
	}
	c.complete, c.headEnd = true, c.next
	c.stdout.freeze()
	c.stderr.freeze()
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
	c.viewStreams(&v)
	c.viewCuts(&v)
	left := viewRunes - runes(v.Stdout) - runes(v.Stderr)
	if c.hasError {
		text := Plain(c.errorText)
		v.Error = &Raised{EName: clipLine(c.ename), EValue: clipLine(Plain(c.evalue))}
		v.Error.Traceback = c.fit(&v, "traceback", text, max(leastRunes, left/3))
		left -= runes(v.Error.Traceback) + runes(v.Error.EValue)
	}
	p := presenter{dir: c.opt.Dir, fetch: fetch, view: &v}
	p.present(ctx, &c.displays)
	for i := range v.Outputs {
		left -= runes(v.Outputs[i].Text)
	}
	if v.HasResult {
		v.Result = c.fit(&v, "result", v.Result, max(leastRunes, left))
	}
	return v
}

func (c *Collector) viewStreams(v *View) {
	var kinds []string
	for _, s := range []struct {
		kind   string
		stream *stream
		into   *string
	}{{contract.Stdout, &c.stdout, &v.Stdout}, {contract.Stderr, &c.stderr, &v.Stderr}} {
		text, cut := s.stream.text(c.headEnd)
		text, over := Clip(text, streamRunes) // one event far longer than the contract allows
		*s.into = text
		if !cut && !over {
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

// fit shortens text to max runes. If that omits something, it saves the whole text.
func (c *Collector) fit(v *View, kind, text string, max int) string {
	short, cut := Clip(text, max)
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
