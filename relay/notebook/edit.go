package notebook

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"colabrelay/relay/output"
	"colabrelay/shared/bounded"
)

// splice is new text for a part of a file.
type splice struct {
	at   span
	text []byte
}

// growth is by how many bytes the file grows.
func (s splice) growth() int { return len(s.text) - s.at.len() }

// apply replaces parts of the file, which do not overlap.
func (d *Document) apply(splices ...splice) error {
	size := len(d.text)
	for _, s := range splices {
		size += s.growth()
	}
	if size > d.most {
		return fmt.Errorf("the edit is not made: the notebook would be %w", bounded.TooLong(int64(d.most)))
	}
	if size+len(d.text) > maxVersions {
		return fmt.Errorf("the edit is not made: the notebook before and after it together is %w: clear its outputs first, for example with `colab-relay nb strip`", bounded.TooLong(maxVersions))
	}
	sort.SliceStable(splices, func(i, j int) bool { return splices[i].at.start < splices[j].at.start })
	text, at := make([]byte, 0, size), 0
	for _, s := range splices {
		text = append(append(text, d.text[at:s.at.start]...), s.text...)
		at = s.at.end
	}
	edited, err := parseUpTo(append(text, d.text[at:]...), d.most)
	if err != nil {
		return fmt.Errorf("the edit is not made, because the notebook could not be read after it: %w", err)
	}
	*d = *edited
	return nil
}

// check reports an index that no cell has.
func (d *Document) check(i int) error {
	if i < 0 || i >= d.Len() {
		return fmt.Errorf("%w: %d of %d cells, counted from 0", ErrNoIndex, i, d.Len())
	}
	return nil
}

// Insert inserts a cell before the cell with the index at; -1 and Len append it. It returns the
// new cell's handle. Key order and white space are those of its neighbours.
func (d *Document) Insert(at int, c NewCell) (handle string, err error) {
	if at == -1 {
		at = d.Len()
	}
	if at != d.Len() {
		if err := d.check(at); err != nil {
			return "", err
		}
	}
	if err := c.check(); err != nil {
		return "", err
	}
	text, err := d.compose(at, c)
	if err != nil {
		return "", err
	}
	if err := d.apply(d.insertion(at, text)); err != nil {
		return "", err
	}
	return d.handle(at, d.source(at)), nil
}

// check reports what is wrong with a cell.
func (c NewCell) check() error {
	if err := c.Type.check(); err != nil {
		return err
	}
	for i, tag := range c.Tags {
		if tag == "" || strings.Contains(tag, ",") || slices.Contains(c.Tags[:i], tag) {
			return fmt.Errorf("%q cannot be a tag: a tag has at least one character and no comma, and occurs once", tag)
		}
	}
	return nil
}

func (t CellType) check() error {
	if t != Code && t != Markdown && t != Raw {
		return fmt.Errorf("%.40q is no type of cell: use code, markdown or raw", t)
	}
	return nil
}

// insertion returns the splice that puts a cell at an index.
func (d *Document) insertion(at int, cell []byte) splice {
	if d.Len() == 0 {
		st := d.style()
		indent := st.unit
		b, _ := st.list(nil, "[]", 1, indent, func(b []byte, _ int) ([]byte, error) { return append(b, cell...), nil })
		return splice{d.list, b}
	}
	if at == 0 {
		start := d.cells[0].all.start
		return splice{span{start, start}, append(cell, d.separator(1)...)}
	}
	end := d.cells[at-1].all.end
	return splice{span{end, end}, append([]byte(d.separator(at)), cell...)}
}

// separator returns what stands before the cell at an index, or would if there were one.
func (d *Document) separator(at int) string {
	if d.Len() > 1 {
		at = min(at, d.Len()-1)
		return string(d.text[d.cells[at-1].all.end:d.cells[at].all.start])
	}
	return d.layoutOf(d.list, []span{d.cells[0].all}).separator
}

// Delete deletes a cell.
func (d *Document) Delete(i int) error {
	if err := d.check(i); err != nil {
		return err
	}
	at := d.list
	switch {
	case i < d.Len()-1:
		at = span{d.cells[i].all.start, d.cells[i+1].all.start}
	case i > 0:
		at = span{d.cells[i-1].all.end, d.cells[i].all.end}
	default:
		return d.apply(splice{at, []byte("[]")})
	}
	return d.apply(splice{at: at})
}

// Move moves a cell; to is its index afterwards.
func (d *Document) Move(i, to int) error {
	if err := errors.Join(d.check(i), d.check(to)); err != nil || i == to {
		return err
	}
	order := make([]int, d.Len())
	for k := range order {
		order[k] = k
	}
	order = slices.Insert(slices.Delete(order, i, i+1), to, i)
	var splices []splice
	for k := min(i, to); k <= max(i, to); k++ {
		splices = append(splices, splice{d.cells[k].all, d.part(d.cells[order[k]].all)})
	}
	return d.apply(splices...)
}

// SetSource changes a cell's source, and its type unless t is empty. The outputs of a code cell
// stay; another type of cell has none. Lines that stay keep their bytes.
func (d *Document) SetSource(i int, source string, t CellType) error {
	if err := d.check(i); err != nil {
		return err
	}
	p := &d.cells[i]
	if t == "" {
		t = p.cellType
	}
	if err := t.check(); err != nil && t != p.cellType {
		return err
	}
	c := d.changing(i)
	if source = output.ValidText(source); source != d.source(i) {
		text, err := d.newSource(i, source, c.indent)
		if err != nil {
			return err
		}
		c.set("source", text, nil)
	}
	if t != p.cellType {
		c.setType(t)
	}
	return c.apply()
}

// NewOutputs are the outputs and the execution count that a code cell gets; 0 means none. An
// output is an object as output.Output.Object returns it.
type NewOutputs struct {
	Index, ExecutionCount int
	Outputs               []map[string]any
	Instead               []map[string]any // of Outputs for which there is no room
}

// SetOutputs sets the outputs and the execution count of a code cell.
func (d *Document) SetOutputs(i, executionCount int, outputs []map[string]any) error {
	return d.SetAllOutputs([]NewOutputs{{Index: i, ExecutionCount: executionCount, Outputs: outputs}}, d.most)
}

// SetAllOutputs sets those of several cells, each of which occurs once, in one edit. A cell whose
// outputs would make the document longer than most bytes gets the others instead.
func (d *Document) SetAllOutputs(all []NewOutputs, most int) error {
	var splices []splice
	size := len(d.text)
	for _, n := range all {
		c, err := d.changingOutputs(n.Index, n.ExecutionCount, n.Outputs)
		if err != nil {
			return err
		}
		change := c.splice()
		if size+change.growth() > most && n.Instead != nil {
			if c, err = d.changingOutputs(n.Index, n.ExecutionCount, n.Instead); err != nil {
				return err
			}
			change = c.splice()
		}
		if c.dirty {
			splices = append(splices, change)
			size += change.growth()
		}
	}
	if len(splices) == 0 {
		return nil
	}
	return d.apply(splices...)
}

func (d *Document) changingOutputs(i, executionCount int, outputs []map[string]any) (*change, error) {
	if err := d.check(i); err != nil {
		return nil, err
	}
	if t := d.cells[i].cellType; t != Code {
		return nil, fmt.Errorf("cell %d has the type %.40q: only code cells have outputs", i, t)
	}
	c := d.changing(i)
	text, err := c.write(nil, outputs, c.indent)
	if err != nil {
		return nil, err
	}
	c.set("outputs", text, nil)
	text, err = c.write(nil, output.Count(executionCount), c.indent)
	c.set("execution_count", text, nil)
	return c, err
}

// Strip removes all outputs, execution counts and states of widgets, and returns of how many cells.
func (d *Document) Strip() (stripped int) {
	var splices []splice
	for i := range d.cells {
		p, before := &d.cells[i], len(splices)
		if p.cellType != Code {
			continue
		}
		if list := d.part(p.outputs); len(list) > 0 && (list[0] != '[' || !isEmpty(list)) {
			splices = append(splices, splice{p.outputs, []byte("[]")})
		}
		if n := d.part(p.count); len(n) > 0 && string(n) != "null" {
			splices = append(splices, splice{p.count, []byte("null")})
		}
		if len(splices) > before {
			stripped++
		}
	}
	if len(splices) > 0 {
		_ = d.apply(splices...) // fewer bytes of the same form
	}
	_ = d.SetWidgets(nil)
	return stripped
}

// change is a cell, or another object, of which some members are being changed.
type change struct {
	document *Document
	index    int  // of the cell
	all      span // the object
	items    []item
	layout
	dirty bool
}

// item is a member of a cell that is being changed. A new one has no place in the file.
type item struct {
	member
	gap   string // before it, with the comma
	value []byte // its new value; nil if it stays
}

// changing begins a change of a cell.
func (d *Document) changing(i int) *change {
	c := d.changingAt(d.cells[i].all)
	c.index = i
	return c
}

// changingAt begins a change of an object.
func (d *Document) changingAt(all span) *change {
	c := &change{document: d, all: all}
	members := d.members(all)
	c.layout = layout{separator: d.style().comma, colon: d.style().colon, style: d.style()}
	if len(members) > 0 {
		c.layout = d.objectLayout(all, members)
	}
	for k, m := range members {
		gap := c.separator
		if k > 0 {
			gap = string(d.text[members[k-1].value.end:m.name.start])
		}
		c.items = append(c.items, item{member: m, gap: gap})
	}
	return c
}

// keys returns the keys of the cell.
func (c *change) keys() []string {
	keys := make([]string, len(c.items))
	for i, m := range c.items {
		keys[i] = m.key
	}
	return keys
}

// set sets a member. If the cell has none with this key, it is added where the order of another
// cell's keys has it.
func (c *change) set(key string, value []byte, order []string) {
	keys := c.keys()
	for i := len(keys) - 1; i >= 0; i-- {
		if keys[i] == key { // the last one counts
			c.dirty = c.dirty || !bytes.Equal(c.document.part(c.items[i].member.value), value)
			c.items[i].value = value
			return
		}
	}
	added := item{member: member{key: key}, gap: c.separator, value: value}
	c.items = slices.Insert(c.items, placeFor(key, keys, order), added)
	c.dirty = true
}

// drop removes all members with a key.
func (c *change) drop(key string) {
	count := len(c.items)
	c.items = slices.DeleteFunc(c.items, func(m item) bool { return m.key == key })
	c.dirty = c.dirty || len(c.items) < count
}

// setType changes the type, and adds and removes members as nbformat's schema asks.
func (c *change) setType(t CellType) {
	c.set("cell_type", c.quote(nil, string(t)), nil)
	if t != Code {
		c.drop("outputs")
		c.drop("execution_count")
		return
	}
	c.drop("attachments")
	order := c.document.orderWith("outputs", c.index)
	for _, f := range []struct{ key, value string }{{"execution_count", "null"}, {"outputs", "[]"}} {
		if !slices.Contains(c.keys(), f.key) {
			c.set(f.key, []byte(f.value), order)
		}
	}
}

// apply writes the changed object.
func (c *change) apply() error {
	if !c.dirty {
		return nil
	}
	return c.document.apply(c.splice())
}

// splice returns the object's new text. Members that stay keep their bytes and the white space
// before them.
func (c *change) splice() splice {
	text := c.document.text
	b := append([]byte{'{'}, c.open...)
	for i, m := range c.items {
		if i > 0 {
			b = append(b, m.gap...)
		}
		switch {
		case m.name.len() == 0:
			b = append(append(c.quote(b, m.key), c.layout.colon...), m.value...)
		case m.value != nil:
			b = append(append(b, text[m.name.start:m.member.value.start]...), m.value...)
		default:
			b = append(b, text[m.name.start:m.member.value.end]...)
		}
	}
	return splice{c.all, append(append(b, c.close...), '}')}
}
