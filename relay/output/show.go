package output

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"colabrelay/relay/plain"
	"colabrelay/shared/contract"
)

// outputs returns the outputs as they are now. Consecutive streams of the same name are one.
func (c *Cell) outputs() []*Output {
	var all []*Output
	for _, e := range c.head {
		all = join(all, e.output())
	}
	if c.cutText > 0 || c.cutOutputs > 0 {
		text := c.marker()
		if n := len(all); n > 0 && all[n-1].Name == contract.Stderr && !strings.HasSuffix(all[n-1].Text, "\n") {
			text = "\n" + text
		}
		all = join(all, &Output{Type: Stream, Name: contract.Stderr, Text: text})
	}
	for _, e := range c.tail {
		all = join(all, e.output())
	}
	if line := string(c.line.text()); line != "" { // the end of the last output, which is a stream
		all = join(all, &Output{Type: Stream, Name: c.last().Name, Text: line})
	}
	return all
}

// output returns the entry as it is now.
func (e *entry) output() *Output {
	o := e.Output
	if o.Type == Stream {
		o.Text = string(e.text)
	}
	switch {
	case e.content == nil:
	case o.Type != Error:
		o.Data, o.Metadata = e.content.bundle(), e.content.metadata
	case !e.content.missing():
		if text, ok := e.content.payloads[0].value.(string); ok {
			o.Traceback = strings.Split(text, "\n")
		}
	}
	return &o
}

// join adds an output. A stream without text is none.
func join(all []*Output, o *Output) []*Output {
	if o.Type != Stream {
		return append(all, o)
	}
	if o.Text == "" {
		return all
	}
	if n := len(all); n > 0 && all[n-1].Type == Stream && all[n-1].Name == o.Name {
		all[n-1].Text += o.Text
		return all
	}
	return append(all, o)
}

// runeAt returns the first index from n on at which a character begins.
func runeAt(text []byte, n int) int {
	for n < len(text) && !utf8.RuneStart(text[n]) {
		n++
	}
	return n
}

// marker says what is left out between head and tail, and where it is.
func (c *Cell) marker() string {
	var what []string
	if c.cutText > 0 {
		what = append(what, plain.Count(c.cutText, "byte")+" of text")
	}
	if c.cutOutputs > 0 {
		what = append(what, plain.Count(c.cutOutputs, "output"))
	}
	text := "[" + strings.Join(what, " and ") + " left out here, because the cell has too many."
	if c.cutText > 0 {
		text += " " + c.spill.where()
	}
	return text + "]\n"
}

// where says where the whole text is.
func (s *spill) where() string {
	switch {
	case s.save == nil:
		return "Nothing keeps the whole text."
	case s.err != nil:
		return "The whole text could not be saved: " + s.err.Error() + "."
	case s.full:
		return fmt.Sprintf("The first %d bytes of the text are in %s.", s.size, s.name)
	}
	return "The whole text is in " + s.name + "."
}

// entries are the outputs of a cell. When they are too many or too long, the middle is left out:
// head is what was first, up to half of each limit, and tail what was last.
type entries struct {
	head, tail []*entry
	full       bool // nothing is added to the head any more
	headText   int  // bytes of streams
	tailText   int
	cutText    int64 // bytes of streams that are not kept
	cutOutputs int
	payloads   int64 // bytes that count for Limits.Payloads
}

func (e *entries) all() []*entry { return slices.Concat(e.head, e.tail) }

func (e *entries) last() *entry {
	if n := len(e.tail); n > 0 {
		return e.tail[n-1]
	}
	if n := len(e.head); n > 0 {
		return e.head[n-1]
	}
	return nil
}

// size returns about how much memory the cell needs.
func (e *entries) size() int64 {
	return int64(e.headText+e.tailText+perOutput*(len(e.head)+len(e.tail))) + e.payloads
}

// allowance is how many bytes of payloads the cell may get.
func (c *Cell) allowance() int64 {
	room := c.limits().Payloads - c.payloads
	if all := c.limits().All; all > 0 {
		for _, cell := range c.collector.cells {
			all -= cell.payloads
		}
		room = min(room, all)
	}
	return max(0, room)
}

// append begins a new output. It is the only place that adds outputs to the cell.
func (c *Cell) append(e *entry) {
	c.line.flush(c.keep)
	half := c.limits().Outputs / 2
	if c.full = c.full || len(c.head) >= half; !c.full {
		c.head = append(c.head, e)
	} else {
		c.tail = append(c.tail, e)
	}
	if e.Type == Error {
		c.payloads += e.size
	}
	for len(c.tail) > half {
		c.drop(c.tail[0])
		c.tail = c.tail[1:]
		c.cutOutputs++
	}
}

// drop forgets an output of the tail.
func (c *Cell) drop(e *entry) {
	if len(e.text) > 0 {
		c.beginSpill()
	}
	c.cutText += int64(len(e.text))
	c.tailText -= len(e.text)
	c.release(e)
	c.unregister(e)
}

// keep adds a line, or a piece of a long one, to the last output, which is a stream.
func (c *Cell) keep(text []byte) {
	if len(text) == 0 {
		return
	}
	if c.full = c.full || c.headText+len(text) > c.limits().Text/2; !c.full {
		c.headText += len(text)
		c.extend(c.last(), text)
		return
	}
	if len(c.tail) == 0 {
		c.tail = append(c.tail, &entry{Output: c.last().Output, cell: c})
	}
	c.tailText += len(text)
	c.extend(c.last(), text)
	if over := c.headText + c.tailText - c.limits().Text; over > 0 {
		c.beginSpill()
		c.trim(over + c.limits().Text/16) // not for each line again
	}
}

func (c *Cell) extend(e *entry, text []byte) {
	e.text = append(e.text, text...)
	c.spill.write(text)
}

// dropEmpty removes the last output if it is a stream without text, as after a lone "\r".
func (c *Cell) dropEmpty() {
	last := c.last()
	switch {
	case last == nil || last.Type != Stream || len(last.text) > 0:
	case len(c.tail) > 0:
		c.tail = c.tail[:len(c.tail)-1]
	default:
		c.head = c.head[:len(c.head)-1]
	}
}

// trim removes the first n bytes of the tail's text, and what is left of their last line.
func (c *Cell) trim(n int) {
	last := c.last()
	c.tail = slices.DeleteFunc(c.tail, func(e *entry) bool {
		if n <= 0 || len(e.text) == 0 {
			return false
		}
		cut := len(e.text)
		if rest := e.text[min(n-1, cut):]; n < cut {
			if cut = n + bytes.IndexByte(rest[:min(len(rest), maxLine)], '\n'); cut < n { // no line ends soon
				cut = runeAt(e.text, n)
			}
		}
		n -= cut
		c.cutText += int64(cut)
		c.tailText -= cut
		e.text = e.text[cut:]
		return len(e.text) == 0 && e != last
	})
}

// beginSpill begins to save the whole text of the cell, all of which is still here.
func (c *Cell) beginSpill() {
	if c.spill.active {
		return
	}
	c.spill.active = true
	for _, e := range c.all() {
		c.spill.write(e.text)
	}
}

// release frees what an entry's content counts.
func (c *Cell) release(e *entry) {
	c.payloads -= e.size
	if e.size = 0; e.content != nil {
		e.content.users--
		e.content = nil
	}
}

// unregister lets no update reach these entries any more.
func (c *Cell) unregister(gone ...*entry) {
	for _, e := range gone {
		if all := c.collector.displays[e.id]; len(all) > 0 {
			all = slices.DeleteFunc(all, func(shown *entry) bool { return shown == e })
			if c.collector.displays[e.id] = all; len(all) == 0 {
				delete(c.collector.displays, e.id)
			}
		}
	}
}

// reset deletes all outputs.
func (c *Cell) reset() {
	for _, e := range c.all() {
		c.release(e)
		c.unregister(e)
	}
	c.entries, c.line, c.clear = entries{}, line{}, false
	c.spill.discard()
}

// maxLine bounds the bytes of a line on which carriage returns work. A longer one is taken in
// pieces of that size, each as a line of its own.
const maxLine = 64 << 10

// line is the last line of a stream, which is not complete. It makes a progress bar one line:
// what follows a carriage return is printed over what there is. Colours stay. The result does
// not depend on the pieces in which the text arrives.
type line struct {
	shown    []rune // what the parts before the last carriage return left
	coloured bool   // shown has escape sequences
	part     []byte // since the last carriage return
}

// write adds text, and calls emit with each line that it completes. emit must not keep its
// argument.
func (l *line) write(text string, emit func([]byte)) {
	for len(text) > 0 {
		at := strings.IndexAny(text, "\r\n")
		if at < 0 {
			l.extend(text, emit)
			return
		}
		l.extend(text[:at], emit)
		if text[at] == '\r' {
			l.overlay()
		} else {
			l.part = append(l.text(), '\n')
			l.shown = nil
			l.flush(emit)
		}
		text = text[at+1:]
	}
}

// extend adds text without line breaks or carriage returns to the part.
func (l *line) extend(text string, emit func([]byte)) {
	for len(l.part)+len(text) > maxLine {
		fits := maxLine - len(l.part)
		for fits > 0 && !utf8.RuneStart(text[fits]) {
			fits--
		}
		l.part = append(l.part, text[:fits]...)
		text = text[fits:]
		l.flush(emit)
	}
	l.part = append(l.part, text...)
}

// flush emits the line as far as it goes, and starts a new one.
func (l *line) flush(emit func([]byte)) {
	emit(l.text())
	*l = line{part: l.part[:0]}
}

// overlay prints the part over what there is. Where escape sequences make columns unknown, it
// replaces that. It takes time in proportion to the part, however long the line is.
func (l *line) overlay() {
	if len(l.part) == 0 {
		return
	}
	runes, colours := []rune(string(l.part)), strings.ContainsRune(string(l.part), '\x1b')
	l.part = l.part[:0]
	if colours || l.coloured || len(runes) >= len(l.shown) {
		l.shown, l.coloured = runes, colours
		return
	}
	copy(l.shown, runes)
}

// text returns what the line shows now. It is valid until the next write.
func (l *line) text() []byte {
	if len(l.shown) == 0 {
		return l.part
	}
	now := line{shown: append([]rune(nil), l.shown...), coloured: l.coloured, part: append([]byte(nil), l.part...)}
	now.overlay()
	return []byte(string(now.shown))
}
