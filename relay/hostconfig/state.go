package hostconfig

import "errors"

// State is what is known about a host on this computer.
type State struct {
	Host  string      `json:"host"`
	Title string      `json:"title"`
	Found bool        `json:"found"` // the host seems to be installed
	Files []FileState `json:"files"`
}

// FileState is what is known about one of a host's configuration files.
type FileState struct {
	Path      string `json:"path"`
	Installed bool   `json:"installed"`         // the file names a program under the relay's name
	Command   string `json:"command,omitempty"` // this program
	Off       string `json:"off,omitempty"`     // why the host does not start it
	Problem   string `json:"problem,omitempty"` // why that is not known
}

// States returns the state of every supported host.
func States(u User) []State {
	var all []State
	for _, h := range Hosts {
		s := State{Host: h.Name, Title: h.Title, Found: h.Found(u)}
		for _, t := range h.Targets(u) {
			have, err := Installed(t)
			f := FileState{Path: t.Path, Command: have.Command, Off: have.Off, Installed: err == nil}
			if err != nil && !errors.Is(err, ErrNotInstalled) {
				f.Problem = err.Error()
			}
			s.Files = append(s.Files, f)
		}
		all = append(all, s)
	}
	return all
}
