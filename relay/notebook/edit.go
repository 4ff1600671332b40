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

// apply replaces parts of the file, which do not overlap. It does nothing if all of them are so already.
func (d *Document) apply(splices ...splice) error {
	splices = slices.DeleteFunc(splices, func(s splice) bool { return bytes.Equal(d.part(s.at), s.text) })
	if len(splices) == 0 {
		return nil
	}
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
// new cell's handle.
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
	inserted, err := d.insertion(at, c)
	if err == nil {
		err = d.apply(inserted)
	}
	if err != nil {
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

// insertion returns the splice that puts a cell at an index, as nbformat writes it.
func (d *Document) insertion(at int, c NewCell) (splice, error) {
	all := d.listed()
	if len(all) == 0 {
		list, err := d.style.write(nil, []any{d.object(0, c)}, d.style.unit)
		return splice{d.list, list}, err
	}
	cell, err := d.style.write(nil, d.object(at, c), d.layoutOf(d.list, all).indent)
	return d.adding(d.list, all, at, cell), err
}

// listed returns the cells as elements of their list.
func (d *Document) listed() []element { return slices.Collect(elements(d.text, d.list)) }

// adding returns the splice that puts an element into a list or an object, which has these, before
// that with an index or at the end.
func (d *Document) adding(whole span, all []element, at int, text []byte) splice {
	l := d.layoutOf(whole, all)
	if len(all) == 0 {
		return splice{whole, slices.Concat(d.text[whole.start:whole.start+1], text, d.text[whole.end-1:whole.end])}
	}
	if at < len(all) {
		start := all[at].start
		return splice{span{start, start}, append(text, l.separator...)}
	}
	end := all[at-1].value.end
	return splice{span{end, end}, append([]byte(l.separator), text...)}
}

// removing returns the splice that removes an element of a list or an object, which has these.
func (d *Document) removing(whole span, all []element, at int) splice {
	switch last := len(all) - 1; {
	case at < last:
		return splice{at: span{all[at].start, all[at+1].start}}
	case at > 0:
		return splice{at: span{all[at-1].value.end, all[at].value.end}}
	default:
		return splice{at: span{whole.start + 1, whole.end - 1}}
	}
}

// Delete deletes a cell.
func (d *Document) Delete(i int) error {
	if err := d.check(i); err != nil {
		return err
	}
	return d.apply(d.removing(d.list, d.listed(), i))
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
	edited := *d
	if source = output.ValidText(source); source != d.source(i) {
		text, err := d.newSource(i, source, d.indentOf(p.all))
		if err == nil {
			err = edited.set(i, "source", text)
		}
		if err != nil {
			return err
		}
	}
	if t != p.cellType {
		if err := edited.setType(i, t); err != nil {
			return err
		}
	}
	*d = edited
	return nil
}

// setType changes the type, and adds and removes members as nbformat's schema asks.
func (d *Document) setType(i int, t CellType) error {
	if err := d.set(i, "cell_type", d.style.quote(nil, string(t))); err != nil {
		return err
	}
	if t != Code {
		return errors.Join(d.drop(i, "outputs"), d.drop(i, "execution_count"))
	}
	err := d.drop(i, "attachments")
	if d.cells[i].count.len() == 0 {
		err = errors.Join(err, d.set(i, "execution_count", []byte("null")))
	}
	if d.cells[i].outputs.len() == 0 {
		err = errors.Join(err, d.set(i, "outputs", []byte("[]")))
	}
	return err
}

// set sets a member of a cell.
func (d *Document) set(i int, key string, value []byte) error {
	return d.apply(d.setting(d.cells[i].all, key, value))
}

// setting returns the splice that sets a member of an object.
func (d *Document) setting(object span, key string, value []byte) splice {
	all, _ := d.members(object) // it was read before
	for _, m := range slices.Backward(all) {
		if m.key == key { // the last one counts
			return splice{m.value, value}
		}
	}
	member := append(append(d.style.quote(nil, key), d.layoutOf(object, all).colon...), value...)
	return d.adding(object, all, placeFor(key, all), member)
}

// drop removes all members of a cell with a key.
func (d *Document) drop(i int, key string) error {
	for {
		removed, has := d.dropping(d.cells[i].all, key)
		if !has {
			return nil
		}
		if err := d.apply(removed); err != nil {
			return err
		}
	}
}

// dropping returns the splice that removes a member of an object, if it has one with this key.
func (d *Document) dropping(object span, key string) (removed splice, has bool) {
	all, _ := d.members(object)
	at := slices.IndexFunc(all, func(m element) bool { return m.key == key })
	if at < 0 {
		return splice{}, false
	}
	return d.removing(object, all, at), true
}

// NewOutputs are the outputs and the execution count that a code cell gets; 0 means none. An
// output is an object as output.Output.Object returns it.
type NewOutputs struct {
	Index, ExecutionCount int
	Outputs               []map[string]any
	Instead               []map[string]any // of Outputs for which there is no room
}

// SetOutputs sets the outputs and execution counts of code cells, each of which occurs once, in one edit. A cell whose
// outputs would make the document longer than most bytes gets the others instead.
func (d *Document) SetOutputs(all []NewOutputs, most int) error {
	var splices []splice
	size := len(d.text)
	for _, n := range all {
		change, growth, err := d.settingOutputs(n, n.Outputs)
		if err == nil && size+growth > most && n.Instead != nil {
			change, growth, err = d.settingOutputs(n, n.Instead)
		}
		if err != nil {
			return err
		}
		splices = append(splices, change...)
		size += growth
	}
	return d.apply(splices...)
}

// settingOutputs returns the splices that give a code cell these outputs, and by how many bytes the
// file grows.
func (d *Document) settingOutputs(n NewOutputs, outputs []map[string]any) (splices []splice, growth int, err error) {
	if err := d.check(n.Index); err != nil {
		return nil, 0, err
	}
	p := &d.cells[n.Index]
	if p.cellType != Code {
		return nil, 0, fmt.Errorf("cell %d has the type %.40q: only code cells have outputs", n.Index, p.cellType)
	}
	list, err := d.style.write(nil, outputs, d.indentOf(p.all))
	if err != nil {
		return nil, 0, err
	}
	count, err := d.style.write(nil, output.Count(n.ExecutionCount), "")
	splices = []splice{d.setting(p.all, "execution_count", count), d.setting(p.all, "outputs", list)}
	for _, s := range splices {
		growth += s.growth()
	}
	return splices, growth, err
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
	_ = d.apply(splices...) // fewer bytes of the same form
	_ = d.SetWidgets(nil)
	return stripped
}
