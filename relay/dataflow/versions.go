package dataflow

import "maps"

// version identifies the value of a name: by the run that wrote it last, counted from 1, or by
// a run that is still to come. 0 means that no run wrote it.
type version int

// versions are the versions of all names at one point of time.
type versions struct {
	names map[string]written
	all   written // by a run that may have written everything
	clock int
}

type written struct {
	by version
	at int // the clock's time
}

func newVersions() *versions { return &versions{names: map[string]written{}} }

func (v *versions) get(name string) version {
	w := v.names[name]
	if v.all.at > w.at && !builtins.has(name) {
		w = v.all
	}
	return w.by
}

// write records what a run wrote.
func (v *versions) write(x effect, by version) {
	v.clock++
	now := written{by, v.clock}
	x.writes(func(name string) { v.names[name] = now })
	if x.opaqueWrite {
		v.all = now
	}
}

// inputs are the versions of the names that the outcome of a cell depends on.
func (v *versions) inputs(f *Facts, x effect) map[string]version {
	found := map[string]version{}
	eachInput(f, x, func(name string) { found[name] = v.get(name) })
	return found
}

// eachInput calls use with each name that a cell reads or may leave as it was, some twice.
func eachInput(f *Facts, x effect, use func(name string)) {
	for name := range x.reads {
		use(name)
	}
	if !f.known() {
		return
	}
	certain := setOf(f.Stores)
	x.writes(func(name string) {
		if !certain.has(name) {
			use(name)
		}
	})
}

func (v *versions) clone() *versions {
	return &versions{names: maps.Clone(v.names), all: v.all, clock: v.clock}
}
