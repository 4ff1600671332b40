package pairing

// Choose makes the runtime of that name the one that calls use if they name none, until
// another one is chosen. It returns ErrNotPaired if there is no such runtime. An empty name
// takes the choice back.
func (s *Store) Choose(name string) error {
	if name != "" {
		return s.changeOf(name, func(l *list, _ Runtime) error {
			l.Chosen = name
			return nil
		})
	}
	if _, err := s.list.Read(); err != nil { // a damaged list stays
		return err
	}
	_, err := s.list.Change(func(l *list) error {
		l.Version, l.Chosen = listVersion, ""
		return nil
	})
	return err
}
