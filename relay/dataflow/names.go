package dataflow

import (
	"maps"
	"slices"
)

// set is a set of names.
type set map[string]struct{}

func (s set) add(names ...string) {
	for _, name := range names {
		s[name] = struct{}{}
	}
}

func (s set) has(name string) bool { _, ok := s[name]; return ok }

func setOf(names []string) set {
	s := set{}
	s.add(names...)
	return s
}

// effect is what one cell does to names, with the functions of other cells that it uses.
type effect struct {
	reads, stores, changes  set // stores: may be bound or deleted; changes: in place
	opaqueRead, opaqueWrite bool
}

func everything() effect {
	return effect{reads: set{}, stores: set{}, changes: set{}, opaqueRead: true, opaqueWrite: true}
}

// writes calls f with every name that the cell may write, in no order, some of them twice.
func (x effect) writes(f func(name string)) {
	for name := range x.stores {
		f(name)
	}
	for name := range x.changes {
		f(name)
	}
}

// binding is what is known of the value of a name.
type binding struct {
	imported  bool
	defined   bool // by def or class, and not as an instance or an alias
	functions map[*Function]struct{}
	shares    set // names whose values it may share: of theirs it may be a part, or have one
}

// scope knows the functions, modules and shared values behind names at one point of a
// notebook.
type scope struct {
	names map[string]*binding
	// entangled: so many names share values that a change in place may change all of them.
	entangled bool
}

// maxShares bounds the names that one name shares values with.
const maxShares = 500

func (s *scope) get(name string) *binding {
	if b := s.names[name]; b != nil {
		return b
	}
	return &binding{}
}

// resolve returns what a cell does at this point.
func (s *scope) resolve(f *Facts) effect {
	if !f.known() {
		return everything()
	}
	r := resolver{scope: s, imports: setOf(f.Imports), effect: effect{
		reads: setOf(f.Reads), stores: setOf(f.MayStore), changes: setOf(f.Changes),
	}}
	r.use(&f.Use)
	for _, name := range f.Reads {
		r.functionsOf(name, setOf(f.Calls[name].Bound))
	}
	r.spread(f.Origins)
	r.share()
	return r.effect
}

// resolver is the work of resolve.
type resolver struct {
	*scope
	imports set // of the cell itself
	effect
}

// functionsOf adds what the functions behind a name do, and those that they use. Names in
// bound have been bound by the cell before.
func (r *resolver) functionsOf(name string, bound set) {
	pending, seen := []string{name}, map[*Function]struct{}{}
	for len(pending) > 0 {
		name, pending = pending[len(pending)-1], pending[:len(pending)-1]
		for f := range r.get(name).functions {
			if _, ok := seen[f]; ok {
				continue
			}
			seen[f] = struct{}{}
			for _, read := range f.Reads {
				if !bound.has(read) {
					r.reads.add(read)
				}
			}
			r.stores.add(f.MayStore...)
			r.changes.add(f.Changes...)
			r.use(&f.Use)
			pending = append(pending, f.Reads...)
		}
	}
}

// use adds what depends on the kind of the names that code uses.
func (r *resolver) use(u *Use) {
	r.opaqueRead = r.opaqueRead || u.OpaqueRead
	r.opaqueWrite = r.opaqueWrite || u.OpaqueWrite
	for _, name := range u.Methods {
		if !r.isImported(name) {
			r.changes.add(name)
		}
	}
	for name, call := range u.Calls {
		r.call(name, call)
	}
}

func (r *resolver) isImported(name string) bool {
	return r.imports.has(name) || r.get(name).imported
}

func (r *resolver) call(name string, c Call) {
	b := r.get(name)
	for f := range b.functions {
		if f.ChangesArguments {
			r.changes.add(c.Passed...)
		}
		if f.ChangesSelf && !b.defined {
			r.changes.add(name)
		}
	}
	if !c.Bare || len(b.functions) > 0 {
		return
	}
	r.changes.add(c.Passed...)
	if r.names[name] != nil && !r.isImported(name) && r.reads.has(name) {
		r.changes.add(name) // an object that is called may keep state; what no cell bound is a builtin
	}
}

// spread adds the names that the cell itself made changed values from.
func (r *resolver) spread(origins map[string]Origin) {
	pending := slices.Collect(maps.Keys(r.changes))
	for len(pending) > 0 {
		var name string
		name, pending = pending[len(pending)-1], pending[:len(pending)-1]
		for _, other := range origins[name].Same {
			if !r.changes.has(other) && !r.isImported(other) {
				r.changes.add(other)
				pending = append(pending, other)
			}
		}
	}
}

// share adds the names that share values with changed ones.
func (r *resolver) share() {
	r.opaqueWrite = r.opaqueWrite || r.entangled && len(r.changes) > 0
	for name := range maps.Clone(r.changes) {
		for other := range r.get(name).shares {
			r.changes.add(other)
		}
	}
}
