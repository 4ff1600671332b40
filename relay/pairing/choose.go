package pairing

// Choose makes the runtime of that name the one that calls use if they name none, until
// another one is chosen. It returns ErrNotPaired if there is no such runtime. An empty name
// takes the choice back.
func (s *Store) Choose(name string) error {
	if name != "" {
		if _, err := s.Get(name); err != nil { // creates no folder
			return err
		}
	}
	unlock, err := s.lockForChange()
	if err != nil {
		return err
	}
	defer unlock()
	all, err := s.readLocked()
	if err != nil {
		return err
	}
	if _, found := all[name]; !found && name != "" {
		return unknown(name, all)
	}
	for each, r := range all {
		r.Chosen = each == name
		all[each] = r
	}
	return s.writeLocked(all)
}

// chosen returns the runtime that Choose named.
func chosen(all map[string]Runtime) (Runtime, bool) {
	for _, r := range all {
		if r.Chosen {
			return r, true
		}
	}
	return Runtime{}, false
}
