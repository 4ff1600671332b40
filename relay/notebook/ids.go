package notebook

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// maxNamed bounds the cells that the sentence about repaired ids names.
const maxNamed = 10

// newID returns an id of eight hexadecimal digits that is not taken.
func newID(taken func(id string) bool) string { return untaken(taken, 4, hex.EncodeToString) }

// newColabID returns an id of twelve characters, as Colab makes them, that is not taken.
func newColabID(taken func(id string) bool) string {
	return untaken(taken, 9, base64.RawURLEncoding.EncodeToString)
}

func untaken(taken func(id string) bool, length int, encode func([]byte) string) string {
	random := make([]byte, length)
	for {
		_, _ = rand.Read(random) // never fails
		if id := encode(random); !taken(id) {
			return id
		}
	}
}

// isTaken reports whether a cell has an id.
func (d *Document) isTaken(id string) bool {
	return slices.ContainsFunc(d.cells, func(p place) bool { return p.own == id || p.colab == id })
}

// RepairIDs gives an id to each cell that needs one and has none, or has one that is not valid or
// belongs to a cell above, and returns sentences about them. Before nbformat 4.5 cells need none.
// Call it before the first edit.
func (d *Document) RepairIDs() (notes []string) {
	if d.minor < 5 {
		return nil
	}
	notes, _ = d.giveIDs() // a repair that makes the file too long is left out
	return notes
}

// Upgrade makes a notebook of an earlier nbformat 4 one of 4.5, in which each cell has an id: its
// metadata.id if it has one, as Colab writes it. It returns sentences about what it changed. The
// error is bounded.ErrTooLong if the file would be too long; the document is then as it was.
func (d *Document) Upgrade() (notes []string, err error) {
	if d.minor >= minor {
		return d.giveIDs()
	}
	version := d.setting(d.top, "nbformat_minor", fmt.Append(nil, minor))
	notes = []string{fmt.Sprintf("The notebook was nbformat 4.%d and is nbformat 4.%d now, in which each cell has an id.", d.minor, minor)}
	given, err := d.giveIDs(version)
	if err != nil {
		return nil, err
	}
	return append(notes, given...), nil
}

// giveIDs gives an id to each cell that has none of its own, makes more splices, and returns
// a sentence about the ids.
func (d *Document) giveIDs(splices ...splice) (notes []string, err error) {
	taken := map[string]bool{}
	var without []int
	for i := range d.cells {
		if own := d.cells[i].own; own == "" || taken[own] {
			without = append(without, i)
		} else {
			taken[own] = true
		}
	}
	var named []string
	for n, i := range without {
		id := d.cells[i].colab
		if id == "" || taken[id] {
			id = newID(func(id string) bool { return taken[id] })
		}
		taken[id] = true
		splices = append(splices, d.setting(d.cells[i].all, "id", d.style.quote(nil, id)))
		if n < maxNamed {
			named = append(named, fmt.Sprintf("cell %d has %s", i, id))
		}
	}
	if len(splices) == 0 {
		return nil, nil
	}
	if more := len(without) - maxNamed; more > 0 {
		named = append(named, fmt.Sprintf("and %d more", more))
	}
	if len(named) > 0 {
		notes = []string{"Cells without a valid id of their own have one now; counted from 0: " + strings.Join(named, ", ") + "."}
	}
	if err := d.apply(splices...); err != nil {
		return nil, err
	}
	return notes, nil
}

// invalid returns a sentence if Jupyter's tools call the notebook invalid, because of what programs
// leave out or keep when they write or convert one.
func (d *Document) invalid() []string {
	faults, byUpgrade := d.faults()
	if len(faults) == 0 {
		return nil
	}
	text := "Jupyter's tools call this file invalid: " + strings.Join(faults, "; ") + "."
	if byUpgrade {
		text += " `colab-relay nb upgrade FILE` converts it to nbformat 4.5, in which each cell has an id."
	}
	return []string{text}
}

// faults says what is invalid, and whether Upgrade mends some of it.
func (d *Document) faults() (all []string, byUpgrade bool) {
	count := func(fault string, has func(p *place) bool) {
		n := 0
		for i := range d.cells {
			if has(&d.cells[i]) {
				n++
			}
		}
		if n > 0 {
			all = append(all, fmt.Sprintf("%s in %d of %d cells", fault, n, len(d.cells)))
		}
	}
	if d.minorAt.len() == 0 {
		all = append(all, "it has no nbformat_minor")
	}
	if d.minor < minor {
		count(fmt.Sprintf("an id, which nbformat 4.%d does not have,", d.minor), func(p *place) bool { return p.id.len() > 0 })
	} else {
		count("no valid id of its own", func(p *place) bool { return p.own == "" || p.name != p.own })
	}
	byUpgrade = len(all) > 0
	if d.metadata.len() == 0 {
		all = append(all, "it has no metadata")
	}
	count("no metadata", func(p *place) bool { return p.metadata.len() == 0 })
	return all, byUpgrade
}
