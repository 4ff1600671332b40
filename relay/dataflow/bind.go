package dataflow

import (
	"maps"
	"slices"
)

// apply records what a cell bound. certain: it ran to its end, so that its Stores are bound.
func (s *scope) apply(f *Facts, certain bool) {
	if !f.known() {
		return
	}
	if s.names == nil {
		s.names = map[string]*binding{}
	}
	b := binder{scope: s, facts: f, stores: set{}, imports: setOf(f.Imports), reads: setOf(f.Reads), next: map[string]*binding{}}
	if certain {
		b.stores = setOf(f.Stores)
	}
	b.begin()
	for b.functions() {
	}
	links := b.links()
	old := map[string]*binding{}
	for name, next := range b.next {
		old[name] = b.get(name)
		s.names[name] = next
	}
	for name, next := range b.next {
		s.separate(name, old[name].shares, next.shares)
	}
	for name, others := range links {
		for other := range others {
			s.join(name, other)
		}
	}
}

// binder is the work of apply.
type binder struct {
	*scope
	facts   *Facts
	stores  set // certainly bound
	imports set // bound by an import
	reads   set
	next    map[string]*binding // of the names that the cell may bind or change
}

// begin starts each name with its own definitions, and with what it was unless it is
// certainly bound.
func (b *binder) begin() {
	for _, name := range b.facts.MayStore {
		next := &binding{imported: b.imports.has(name), functions: map[*Function]struct{}{}, shares: set{}}
		if f, ok := b.facts.Functions[name]; ok {
			next.functions[&f] = struct{}{}
			next.defined = len(b.facts.Origins[name].Same) == 0
		}
		if !b.stores.has(name) {
			b.keep(next, name)
		}
		b.next[name] = next
	}
	for name := range b.facts.Origins { // those that only change
		if b.next[name] == nil {
			next := &binding{functions: map[*Function]struct{}{}, shares: set{}}
			b.keep(next, name)
			b.next[name] = next
		}
	}
}

func (b *binder) keep(next *binding, name string) {
	old := b.get(name)
	next.imported = next.imported || old.imported
	next.defined = next.defined || old.defined
	maps.Copy(next.shares, old.shares)
	for f := range old.functions {
		next.functions[f] = struct{}{}
	}
}

// functions passes functions on from the values that names were made from. It reports
// whether it has to be called again.
func (b *binder) functions() (more bool) {
	for name, origin := range b.facts.Origins {
		if b.next[name].imported {
			continue
		}
		from := origin.Same
		if b.isLasting(origin) {
			from = append(append(append([]string{}, from...), origin.Passed...), origin.Called...)
		}
		next := b.next[name]
		before := len(next.functions)
		for _, other := range from {
			b.pass(other, next)
		}
		more = more || len(next.functions) > before
	}
	return more
}

func (b *binder) pass(other string, next *binding) {
	if b.isOld(other) {
		for f := range b.get(other).functions {
			next.functions[f] = struct{}{}
		}
	}
	if made := b.next[other]; made != nil {
		for f := range made.functions {
			next.functions[f] = struct{}{}
		}
	}
}

// isOld reports whether the cell may use what a name was before it.
func (b *binder) isOld(name string) bool { return !b.stores.has(name) || b.reads.has(name) }

// isLasting reports whether a value may use what it was made with: an instance of a class, or
// what a function that makes functions returns.
func (b *binder) isLasting(o Origin) bool {
	for _, name := range o.Called {
		for _, of := range []*binding{b.get(name), b.next[name]} {
			if of == nil {
				continue
			}
			for f := range of.functions {
				if f.Lasting && of.defined {
					return true
				}
			}
		}
	}
	return false
}

// links returns, for each name, those whose values it may share after the cell.
func (b *binder) links() map[string]set {
	links := map[string]set{}
	if b.entangled {
		return links
	}
	for name, origin := range b.facts.Origins {
		if b.next[name].imported {
			continue
		}
		from := origin.Same
		if b.isLasting(origin) {
			from = append(append([]string{}, from...), origin.Passed...)
		}
		others := set{}
		for other := range b.madeFrom(from) {
			if b.imports.has(other) || b.get(other).imported && b.next[other] == nil {
				continue
			}
			others.add(other)
			if b.isOld(other) {
				maps.Copy(others, b.get(other).shares)
			}
		}
		links[name] = merged(links[name], others)
		if !b.stores.has(name) { // the value that it was may have them now
			for sharer := range b.get(name).shares {
				links[sharer] = merged(links[sharer], others)
			}
		}
	}
	return links
}

// madeFrom are the names and those that the cell made their values from.
func (b *binder) madeFrom(names []string) set {
	all := setOf(names)
	for pending := slices.Clone(names); len(pending) > 0; {
		name := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		for _, other := range b.facts.Origins[name].Same {
			if !all.has(other) {
				all.add(other)
				pending = append(pending, other)
			}
		}
	}
	return all
}

func merged(a, b set) set {
	a = maps.Clone(a)
	if a == nil {
		a = set{}
	}
	maps.Copy(a, b)
	return a
}

// separate ends the sharing of a name with those that it shared values with before and does
// not share values with any more.
func (s *scope) separate(name string, before, now set) {
	for other := range before {
		if !now.has(other) {
			delete(s.get(other).shares, name)
		}
	}
}

// join makes two names share their values.
func (s *scope) join(name, other string) {
	if name == other {
		return
	}
	a, b := s.owned(name), s.owned(other)
	a.shares.add(other)
	b.shares.add(name)
	s.entangled = s.entangled || len(a.shares) > maxShares || len(b.shares) > maxShares
}

func (s *scope) owned(name string) *binding {
	if s.names[name] == nil {
		s.names[name] = &binding{functions: map[*Function]struct{}{}, shares: set{}}
	}
	return s.names[name]
}

func (s *scope) clone() *scope {
	c := &scope{names: make(map[string]*binding, len(s.names)), entangled: s.entangled}
	for name, b := range s.names {
		copied := *b
		copied.functions, copied.shares = maps.Clone(b.functions), maps.Clone(b.shares)
		c.names[name] = &copied
	}
	return c
}
