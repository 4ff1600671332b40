package notebook

import (
	"bytes"
	"slices"
	"strings"
)

// layout is the white space of an object or a list, with the commas in it.
type layout struct {
	open, separator, close string
	colon                  string // of an object
	indent                 string // of the lines of its elements
	style                         // of new values in it
}

// members returns the members of an object that has been indexed.
func (d *Document) members(object span) (all []member) {
	s := &scanner{text: d.text[:object.end], at: object.start}
	_ = s.object(func(m *member) (err error) {
		m.value, err = s.value()
		all = append(all, *m)
		return err
	})
	return all
}

// elements returns the elements of a list that has been indexed.
func (d *Document) elements(list span) (all []span) {
	s := &scanner{text: d.text[:list.end], at: list.start}
	_ = s.array(func() error {
		at, err := s.value()
		all = append(all, at)
		return err
	})
	return all
}

// newline returns the line break in white space, "" if there is none.
func newline(space string) string {
	for _, end := range []string{"\r\n", "\n", "\r"} {
		if strings.Contains(space, end) {
			return end
		}
	}
	return ""
}

// layoutOf returns the layout of the elements between two delimiters, of which there is one at
// least.
func (d *Document) layoutOf(whole span, elements []span) layout {
	l := layout{open: string(d.text[whole.start+1 : elements[0].start]), style: d.style()}
	l.close = string(d.text[elements[len(elements)-1].end : whole.end-1])
	l.newline = newline(l.open)
	switch {
	case len(elements) > 1:
		l.separator = string(d.text[elements[0].end:elements[1].start])
	case l.newline != "":
		l.separator = "," + l.open
	default:
		l.separator = d.style().comma
	}
	if l.newline == "" {
		l.comma = ", "
		if !strings.HasSuffix(l.separator, " ") {
			l.comma = ","
		}
		return l
	}
	l.comma = ","
	l.indent = l.open[strings.LastIndexAny(l.open, "\r\n")+1:]
	return l
}

// objectLayout returns the layout of an object with these members, of which there is one at
// least.
func (d *Document) objectLayout(object span, members []member) layout {
	places := make([]span, len(members))
	for i, m := range members {
		places[i] = span{m.name.start, m.value.end}
	}
	l := d.layoutOf(object, places)
	l.colon = string(d.text[members[0].name.end:members[0].value.start])
	l.style.colon = l.colon
	return l
}

// style returns how the file is written, as its first lines show.
func (d *Document) style() style {
	open := d.text[d.top.start+1:]
	s := scanner{text: open}
	s.next()
	space := string(open[:s.at])
	st := style{newline: newline(space), comma: ",", colon: ":", ascii: d.escaped && !d.raw}
	if st.newline != "" {
		st.unit = space[strings.LastIndexAny(space, "\r\n")+1:]
	} else if d.gap.len() != 1 { // after the first value
		st.comma = ", "
	}
	_ = s.string()
	if s.next(); bytes.HasPrefix(open[s.at:], []byte(": ")) {
		st.colon = ": "
	}
	return st
}

// model returns the cell nearest to a place for which good holds, or -1.
func (d *Document) model(at int, good func(p *place) bool) int {
	for distance := range d.Len() + 1 {
		for _, i := range [2]int{at - 1 - distance, at + distance} {
			if i >= 0 && i < d.Len() && good(&d.cells[i]) {
				return i
			}
		}
	}
	return -1
}

// orderWith returns the keys of the cell nearest to a place that has a key: id or outputs.
func (d *Document) orderWith(key string, at int) (order []string) {
	i := d.model(at, func(p *place) bool { return key == "id" && p.id.len() > 0 || key == "outputs" && p.outputs.len() > 0 })
	if i < 0 {
		return nil
	}
	for _, m := range d.members(d.cells[i].all) {
		order = append(order, m.key)
	}
	return order
}

// sourceLayout returns the layout of the list of lines nearest to a place, if there is one with
// a line in it.
func (d *Document) sourceLayout(at int) (layout, bool) {
	i := d.model(at, func(p *place) bool {
		list := d.part(p.source)
		return len(list) > 0 && list[0] == '[' && !isEmpty(list)
	})
	if i < 0 {
		return layout{}, false
	}
	list := d.cells[i].source
	return d.layoutOf(list, d.elements(list)), true
}

// lay appends encoded elements between two delimiters.
func (l layout) lay(b []byte, delimiters string, elements [][]byte) []byte {
	if len(elements) == 0 {
		return append(b, delimiters...)
	}
	b = append(append(b, delimiters[0]), l.open...)
	for i, element := range elements {
		if i > 0 {
			b = append(b, l.separator...)
		}
		b = append(b, element...)
	}
	return append(append(b, l.close...), delimiters[1])
}

// placeFor returns where a new key goes among keys: before the first one that follows it in the
// order of a model, or at the end. Without a model, keys that are sorted stay sorted.
func placeFor(key string, keys, model []string) int {
	at := slices.Index(model, key)
	if at < 0 && slices.IsSorted(keys) {
		at, _ = slices.BinarySearch(keys, key)
		return at
	}
	for i, k := range keys {
		if at >= 0 && slices.Index(model, k) > at {
			return i
		}
	}
	return len(keys)
}
