package notebook

import (
	"bytes"
	"slices"
)

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
