package output

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"colabrelay/shared/contract"
)

// outputs returns the outputs as they are now. Consecutive streams of the same name are one.
func (c *Cell) outputs() []*Output {
	var all []*Output
	for _, e := range c.head {
		all = join(all, e.output())
	}
	tail, cut := c.shownTail()
	if cut > 0 || c.cutOutputs > 0 {
		text := c.marker(cut)
		if n := len(all); n > 0 && all[n-1].Name == contract.Stderr && !strings.HasSuffix(all[n-1].Text, "\n") {
			text = "\n" + text
		}
		all = join(all, &Output{Type: Stream, Name: contract.Stderr, Text: text})
	}
	for _, o := range tail {
		all = join(all, o)
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

// shownTail returns the tail, with the line that is not complete and without the text that is
// over the limit, and how much text is left out.
func (c *Cell) shownTail() (shown []*Output, cut int64) {
	for _, e := range c.tail {
		shown = append(shown, e.output())
	}
	line := string(c.line.text())
	if n := len(shown); n > 0 && line != "" {
		shown[n-1].Text += line // which is a stream, because a line is the end of one
	} else if line != "" {
		shown = append(shown, &Output{Type: Stream, Name: c.last().Name, Text: line})
	}
	text, half := c.tailText+len(line), c.limits().Text/2
	if c.cutText == 0 && c.headText+text <= c.limits().Text {
		return shown, 0
	}
	cut = c.cutText
	for _, o := range shown {
		if o.Type == Stream && text > half {
			before := len(o.Text)
			o.Text = withoutFront(o.Text, min(before, text-half))
			cut += int64(before - len(o.Text))
			text -= before // all of it or, of the last one, as much as is over
		}
	}
	return shown, cut
}

// soon is how far the end of a line may be at which a text is cut.
const soon = 4 << 10

// withoutFront returns text without its first n bytes, from the beginning of a line if one begins
// soon, else of a character.
func withoutFront(text string, n int) string {
	if n == 0 {
		return text
	}
	if at := strings.IndexByte(text[n-1:min(len(text), n+soon)], '\n'); at >= 0 {
		return text[n+at:]
	}
	return text[runeAt([]byte(text), n):]
}

// runeAt returns the first index from n on at which a character begins.
func runeAt(text []byte, n int) int {
	for n < len(text) && !utf8.RuneStart(text[n]) {
		n++
	}
	return n
}

// marker says what is left out between head and tail, and where it is.
func (c *Cell) marker(cut int64) string {
	var what []string
	if cut > 0 {
		what = append(what, plural(cut, "byte")+" of text")
	}
	if c.cutOutputs > 0 {
		what = append(what, plural(int64(c.cutOutputs), "output"))
	}
	text := "[" + strings.Join(what, " and ") + " left out here, because the cell has too many."
	if cut > 0 {
		text += " " + c.spill.where()
	}
	return text + "]\n"
}

func plural(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
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
