package render

import (
	"context"
	"errors"
	"fmt"
	"io"

	"colabrelay/relay/output"
	"colabrelay/shared/contract"
)

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
	c.viewCuts(&v)
	p := presenter{Collector: c, fetch: fetch, view: &v}
	p.present(ctx)
	trace := Plain(c.earlierErrors.String()) + p.wholeTraceback(ctx)
	room := c.share(&v, trace)
	c.viewStreams(&v, room)
	if c.errors > 0 {
		most := max(2*leastRunes, c.opt.Limit/6)
		v.Error = &Raised{EName: clipLine(c.ename, most), EValue: clipLine(Plain(c.evalue), most)}
		v.Error.Traceback = p.traceback(ctx, trace, room.traceback)
	}
	if c.errorsLeftOut > 0 {
		p.note("errors that were displayed before the last one and are not shown here: %d", c.errorsLeftOut)
	}
	p.thin(room.outputs)
	if v.HasResult {
		v.Result = p.fit("result", v.Result, room.result)
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
	var kinds []string
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
		kinds = append(kinds, s.kind)
	}
	c.viewSaved(v, kinds)
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
	if output.PayloadBytes(p.errorWhole.data["text/plain"]) <= maxText {
		return p.fit("traceback", text, most)
	}
	if _, err := p.original(ctx, &p.errorWhole, "text/plain", false); err != nil {
		p.note("the whole traceback could not be read: %v", err)
	}
	short, _ := Clip(text, max(leastRunes, most))
	return short
}

// wholeTraceback is the traceback without colours: all of one that was shortened on the VM, if it
// can be had.
func (p *presenter) wholeTraceback(ctx context.Context) string {
	if raw := p.errorWhole.data["text/plain"]; raw != nil {
		b := newEnds(maxText)
		if p.payload(ctx, "text/plain", raw, b) == nil {
			return Plain(b.text())
		}
	}
	return Plain(p.errorText)
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
