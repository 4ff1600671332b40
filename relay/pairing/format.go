package pairing

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"colabrelay/shared/auth"
	"colabrelay/shared/keep"
)

const (
	listVersion = 3
	maxFile     = 1 << 20 // bytes; thousands of runtimes
)

// list is runtimes.json.
type list struct {
	Version  int              `json:"version"`
	Chosen   string           `json:"chosen,omitempty"` // the runtime that Choose named
	Runtimes map[string]entry `json:"runtimes"`
}

// entry contains the secret in clear text: only this user may read the file.
type entry struct {
	URL          string   `json:"url,omitempty"`
	Secret       string   `json:"secret"`
	Provider     string   `json:"provider,omitempty"`
	VMID         string   `json:"vm_id,omitempty"`
	FromPage     bool     `json:"from_page,omitempty"`
	SSHHost      string   `json:"ssh_host,omitempty"`
	SSHArguments []string `json:"ssh_arguments,omitempty"`
}

// check says why a list that was read cannot be used.
func (l *list) check() error {
	switch {
	case l.Version > listVersion:
		return fmt.Errorf("%w (it has version %d, and this one knows up to %d)", keep.ErrNewer, l.Version, listVersion)
	case l.Version < 1:
		return fmt.Errorf("its version is %d", l.Version)
	}
	for name, e := range l.Runtimes {
		_, err := auth.NewSecret(e.Secret)
		if e.URL != "" {
			err = errors.Join(err, auth.CheckURL(e.URL))
		}
		if err != nil {
			return fmt.Errorf("runtime %q: %w", name, err)
		}
	}
	return nil
}

// get returns the runtime of that name.
func (l *list) get(name string) (Runtime, bool) {
	e, found := l.Runtimes[name]
	if !found {
		return Runtime{}, false
	}
	secret, err := auth.NewSecret(e.Secret)
	if err != nil {
		panic(err) // see check
	}
	return Runtime{
		Name: name, URL: e.URL, Secret: secret, Chosen: name == l.Chosen, Provider: e.Provider, VMID: e.VMID, FromPage: e.FromPage,
		SSHHost: e.SSHHost, SSHArguments: e.SSHArguments,
	}, true
}

// put adds or replaces a runtime. Which one is chosen stays.
func (l *list) put(r Runtime) {
	if l.Runtimes == nil {
		l.Runtimes = map[string]entry{}
	}
	l.Version = listVersion
	l.Runtimes[r.Name] = entry{
		URL: r.URL, Secret: r.Secret.Reveal(), Provider: r.Provider, VMID: r.VMID, FromPage: r.FromPage,
		SSHHost: r.SSHHost, SSHArguments: r.SSHArguments,
	}
}

// sorted returns all runtimes, by name.
func (l *list) sorted() (all []Runtime) {
	for _, name := range slices.Sorted(maps.Keys(l.Runtimes)) {
		r, _ := l.get(name)
		all = append(all, r)
	}
	return all
}

// all returns all runtimes.
func (l *list) all() map[string]Runtime {
	all := map[string]Runtime{}
	for _, r := range l.sorted() {
		all[r.Name] = r
	}
	return all
}
