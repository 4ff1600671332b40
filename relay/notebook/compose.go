package notebook

import "slices"

// compose returns the text of a new cell for a place: with the keys of the nearest cell, in its
// order and with its white space.
func (d *Document) compose(at int, c NewCell) ([]byte, error) {
	model := d.model(at, func(p *place) bool { return p.cellType == c.Type })
	if model < 0 {
		model = d.model(at, func(*place) bool { return true })
	}
	st := d.style()
	l := layout{style: st}
	var keys []string
	if model >= 0 {
		change := d.changing(model)
		l, keys = change.layout, change.keys()
	} else { // as deep as a cell is in the list of an object
		l.indent = st.unit + st.unit + st.unit
		if st.newline != "" {
			l.open, l.close = st.newline+l.indent, st.newline+st.unit+st.unit
		}
		l.separator, l.colon = st.comma+l.open, st.colon
	}
	var elements [][]byte
	for _, key := range d.keysOf(c.Type, keys) {
		value, err := d.valueOf(key, at, c, l)
		if err != nil {
			return nil, err
		}
		elements = append(elements, append(append(l.quote(nil, key), l.colon...), value...))
	}
	return l.lay(nil, "{}", elements), nil
}

// keysOf returns the keys of a new cell, in the order of a model.
func (d *Document) keysOf(t CellType, model []string) []string {
	need := []string{"cell_type", "id", "metadata", "source"}
	if t == Code {
		need = []string{"cell_type", "execution_count", "id", "metadata", "outputs", "source"}
	}
	need = slices.DeleteFunc(need, func(key string) bool { return key == "id" && d.minor < 5 })
	var keys []string
	for _, key := range model {
		if slices.Contains(need, key) && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	for _, key := range need {
		if !slices.Contains(keys, key) {
			keys = slices.Insert(keys, placeFor(key, keys, nil), key)
		}
	}
	return keys
}

// valueOf returns the value of a key of a new cell.
func (d *Document) valueOf(key string, at int, c NewCell, l layout) ([]byte, error) {
	switch key {
	case "cell_type":
		return l.write(nil, string(c.Type), l.indent)
	case "execution_count":
		return []byte("null"), nil
	case "id":
		return l.write(nil, newID(d.isTaken), l.indent)
	case "outputs":
		return []byte("[]"), nil
	case "source":
		if c.Source == "" {
			return []byte("[]"), nil
		}
		return d.writeLines(at, c.Source, l.indent), nil
	}
	metadata := map[string]any{}
	if len(c.Tags) > 0 {
		metadata["tags"] = c.Tags
	}
	if d.isColab(at) {
		metadata["id"] = newColabID(d.isTaken)
	}
	return l.write(nil, metadata, l.indent)
}

// isColab reports whether a cell next to a place has an id as Colab writes it.
func (d *Document) isColab(at int) bool {
	for i := max(0, at-1); i <= at && i < d.Len(); i++ {
		if d.cells[i].colab != "" {
			return true
		}
	}
	return false
}
