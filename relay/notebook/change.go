package notebook

import "slices"

// change is a cell of which some members are being changed.
type change struct {
	document *Document
	index    int
	members  []member
	values   [][]byte // new values by member; nil if it stays
	layout
	dirty bool
}

// changing begins a change of a cell.
func (d *Document) changing(i int) *change {
	c := &change{document: d, index: i, members: d.members(d.cells[i].all)}
	c.values = make([][]byte, len(c.members))
	c.layout = layout{open: "", separator: d.style().comma, colon: d.style().colon, style: d.style()}
	if len(c.members) > 0 {
		c.layout = d.objectLayout(d.cells[i].all, c.members)
	}
	return c
}

// keys returns the keys of the cell.
func (c *change) keys() []string {
	keys := make([]string, len(c.members))
	for i, m := range c.members {
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
			c.dirty = c.dirty || string(c.document.part(c.members[i].value)) != string(value)
			c.values[i] = value
			return
		}
	}
	at := placeFor(key, keys, order)
	c.members = slices.Insert(c.members, at, member{key: key})
	c.values = slices.Insert(c.values, at, value)
	c.dirty = true
}

// drop removes all members with a key.
func (c *change) drop(key string) {
	for i := len(c.members) - 1; i >= 0; i-- {
		if c.members[i].key == key {
			c.members, c.values = slices.Delete(c.members, i, i+1), slices.Delete(c.values, i, i+1)
			c.dirty = true
		}
	}
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

// apply writes the changed cell.
func (c *change) apply() error {
	if !c.dirty {
		return nil
	}
	return c.document.apply(c.splice())
}

// splice returns the cell's new text. Members that stay keep their bytes and the white space
// before them.
func (c *change) splice() splice {
	d, all := c.document, c.document.cells[c.index].all
	before := map[int]string{} // by the place of a key in the file
	old := d.members(all)
	for i := 1; i < len(old); i++ {
		before[old[i].name.start] = string(d.text[old[i-1].value.end:old[i].name.start])
	}
	b := append([]byte{'{'}, c.open...)
	for i, m := range c.members {
		if gap, ok := before[m.name.start]; i > 0 && ok {
			b = append(b, gap...)
		} else if i > 0 {
			b = append(b, c.separator...)
		}
		switch {
		case m.name.len() == 0:
			b = append(append(c.quote(b, m.key), c.layout.colon...), c.values[i]...)
		case c.values[i] != nil:
			b = append(append(b, d.text[m.name.start:m.value.start]...), c.values[i]...)
		default:
			b = append(b, d.text[m.name.start:m.value.end]...)
		}
	}
	return splice{all, append(append(b, c.close...), '}')}
}
