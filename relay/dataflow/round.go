package dataflow

import "slices"

// round follows the names through the notebook twice at once: as a new kernel would have them
// (wanted), and as this kernel would have them if the selected cells ran in order (actual). It
// selects cells where the two differ, and reports whether it selected any.
func (s *syncer) round() bool {
	w := walk{syncer: s, wanted: newVersions(), actual: s.kernel.clone(), scope: s.scope.clone(), writers: map[string]int{}, anyWriter: -1}
	for i := range s.cells {
		w.cell(i)
	}
	w.end()
	return w.added
}

// walk is one round.
type walk struct {
	*syncer
	wanted, actual *versions
	scope          *scope         // of the actual values: earlier runs may have left more names of a value
	writers        map[string]int // the last cell above that may write a name
	anyWriter      int            // the last cell above that may write everything; -1 for none
	selectedAbove  bool
	latest         int      // the latest of the last runs of the cells above
	needs          [][]need // of each cell so far
	added          bool
}

// need is a name that a cell needs, with its wanted version and the cells that may have
// written that; -1 for none.
type need struct {
	name              string
	wanted            version
	writer, anyWriter int
}

func (w *walk) cell(i int) {
	if w.reasons[i] == "" {
		if why := w.mismatch(i); why != "" {
			w.added = w.need(i, why) || w.added
		}
	}
	w.needs = append(w.needs, w.needsOf(i))
	x, by := w.effects[i], version(w.last[i]+1)
	if w.reasons[i] != "" {
		w.repair(i)
		w.selectedAbove = true
		by = version(len(w.runs) + 1 + i)
		w.actual.write(w.scope.resolve(w.cells[i].Facts), by)
		w.scope.apply(w.cells[i].Facts, true)
	}
	w.wanted.write(x, by)
	x.writes(func(name string) { w.writers[name] = i })
	if x.opaqueWrite {
		w.anyWriter = i
	}
	w.latest = max(w.latest, w.last[i])
}

func (w *walk) needsOf(i int) (needs []need) {
	eachInput(w.cells[i].Facts, w.effects[i], func(name string) { needs = append(needs, w.needed(name)) })
	return needs
}

func (w *walk) needed(name string) need {
	writer, ok := w.writers[name]
	if !ok {
		writer = -1
	}
	return need{name, w.wanted.get(name), writer, w.anyWriter}
}

// mismatch returns why the last run of a cell can't stand.
func (w *walk) mismatch(i int) Reason {
	x, inputs := w.effects[i], w.inputs[w.last[i]]
	if x.opaqueRead {
		switch {
		case w.selectedAbove:
			return BelowDirty
		case w.latest > w.last[i]:
			return OutOfOrder
		}
	}
	var why Reason
	eachInput(w.cells[i].Facts, x, func(name string) {
		wanted := w.wanted.get(name)
		switch {
		case inputs[name] == wanted:
		case int(wanted) > len(w.runs):
			why = BelowDirty
		case wanted == 0 && !x.reads.has(name): // a loop's name, say, from an earlier run of the cell
		case wanted == 0 && why != BelowDirty:
			why = LostSource
		case why == "":
			why = OutOfOrder
		}
	})
	return why
}

// repair selects the cells whose names cell i needs as they wrote them.
func (w *walk) repair(i int) {
	x := w.effects[i]
	if x.opaqueRead {
		w.repairAll()
		return
	}
	for _, n := range w.needs[i] {
		w.restore(n.name)
	}
}

func (w *walk) repairAll() {
	for name := range w.wanted.names {
		w.restore(name)
	}
	if w.actual.all.by != w.wanted.all.by {
		w.rewrite(w.anyWriter)
	}
}

// restore selects the cells that give a name its wanted value.
func (w *walk) restore(name string) {
	if w.actual.get(name) != w.wanted.get(name) {
		n := w.needed(name)
		w.rewrite(n.writer)
		w.rewrite(n.anyWriter)
	}
}

// rewrite selects a cell above whose names were changed later, and those that it needs.
func (w *walk) rewrite(cell int) {
	pending := []int{cell}
	for len(pending) > 0 {
		cell, pending = pending[len(pending)-1], pending[:len(pending)-1]
		if cell < 0 || !w.need(cell, Overwritten) {
			continue
		}
		w.added = true
		for _, n := range w.needs[cell] {
			if w.kernel.get(n.name) != n.wanted {
				pending = append(pending, n.writer, n.anyWriter)
			}
		}
	}
}

// end compares what is there after the last cell.
func (w *walk) end() {
	w.repairAll()
	w.linger = nil
	for name := range w.actual.names {
		if _, ok := w.writers[name]; !ok {
			w.linger = append(w.linger, name)
		}
	}
	slices.Sort(w.linger)
}
