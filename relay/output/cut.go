package output

import (
	"slices"
)

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
	half := c.limits().Text / 2
	if c.full = c.full || c.headText+len(text) > half; !c.full {
		c.headText += len(text)
		c.extend(c.last(), text)
		return
	}
	if len(c.tail) == 0 {
		last := c.last()
		c.tail = append(c.tail, &entry{Output: last.Output, cell: c})
	}
	c.tailText += len(text)
	c.extend(c.last(), text)
	if c.tailText > 2*half {
		c.beginSpill()
		c.trim(c.tailText - half - soon)
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

// trim removes the first n bytes of the tail's text, or a few more to end with a character.
func (c *Cell) trim(n int) {
	last := c.last()
	c.tail = slices.DeleteFunc(c.tail, func(e *entry) bool {
		if n <= 0 || len(e.text) == 0 {
			return false
		}
		cut := runeAt(e.text, min(n, len(e.text)))
		n -= cut
		c.cutText += int64(cut)
		c.tailText -= cut
		e.text = append([]byte(nil), e.text[cut:]...)
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

// endAdd saves what was added, if the cell does not have the whole text.
func (c *Cell) endAdd() {
	line := c.line.text()
	if c.headText+c.tailText+len(line) > c.limits().Text {
		c.beginSpill()
	}
	c.spill.flush(line)
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
