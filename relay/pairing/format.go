package pairing

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"colabrelay/shared/auth"
	"colabrelay/shared/bounded"
)

const (
	// fileVersion 2 allows runtimes without a URL; relays that know version 1 only would
	// call that damage.
	fileVersion = 2
	// providerVersion is the version of a file with a runtime that has a provider. Relays that
	// know version 2 only would not reach it, and would drop its provider when they write.
	providerVersion = 3
	maxFile         = 1 << 20 // bytes; thousands of runtimes
)

// file is runtimes.json.
type file struct {
	Version  int              `json:"version"`
	Chosen   string           `json:"chosen,omitempty"` // the runtime that Choose named
	Runtimes map[string]entry `json:"runtimes"`
}

// entry contains the secret in clear text: only this user may read the file (0600).
type entry struct {
	URL      string `json:"url,omitempty"`
	Secret   string `json:"secret"`
	Provider string `json:"provider,omitempty"`
	VMID     string `json:"vm_id,omitempty"`
	FromPage bool   `json:"from_page,omitempty"` // an older relay drops it, and the pairing is then kept
	SSHHost  string `json:"ssh_host,omitempty"`  // an older relay drops it, and `colab-relay ssh` then asks for another name
	// SSHArguments: an older relay drops them, and its hints show the command without them.
	SSHArguments []string `json:"ssh_arguments,omitempty"`
}

// decode reads the file. It returns ErrDamaged when the content is unusable. A newer
// version is a different error, because a newer relay can still read the file.
func decode(r io.Reader) (map[string]Runtime, error) {
	text, err := bounded.ReadAll(r, maxFile)
	if errors.Is(err, bounded.ErrTooLong) {
		return nil, fmt.Errorf("%w: %v", ErrDamaged, err)
	}
	if err != nil {
		return nil, fmt.Errorf("read the paired runtimes: %v", err)
	}
	var f file
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, fmt.Errorf("%w: %v", ErrDamaged, err)
	}
	switch {
	case f.Version > providerVersion:
		return nil, fmt.Errorf("the list of paired runtimes has version %d, but this relay reads only up to version %d: use the newer relay", f.Version, providerVersion)
	case f.Version < 1:
		return nil, fmt.Errorf("%w: version %d", ErrDamaged, f.Version)
	}
	all := make(map[string]Runtime, len(f.Runtimes))
	for name, e := range f.Runtimes {
		secret, err := auth.NewSecret(e.Secret)
		if err == nil && e.URL != "" {
			err = auth.CheckURL(e.URL)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: runtime %q: %v", ErrDamaged, name, err)
		}
		all[name] = Runtime{Name: name, URL: e.URL, Secret: secret, Chosen: name == f.Chosen, Provider: e.Provider, VMID: e.VMID, FromPage: e.FromPage, SSHHost: e.SSHHost, SSHArguments: e.SSHArguments}
	}
	return all, nil
}

func encode(all map[string]Runtime) (io.Reader, error) {
	f := file{Version: fileVersion, Runtimes: make(map[string]entry, len(all))}
	for name, r := range all {
		if r.Chosen {
			f.Chosen = name
		}
		if r.Provider != "" {
			f.Version = providerVersion
		}
		f.Runtimes[name] = entry{URL: r.URL, Secret: r.Secret.Reveal(), Provider: r.Provider, VMID: r.VMID, FromPage: r.FromPage, SSHHost: r.SSHHost, SSHArguments: r.SSHArguments}
	}
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write the paired runtimes: %v", err)
	}
	if len(text) >= maxFile {
		return nil, fmt.Errorf("the list of paired runtimes would be larger than %d bytes", maxFile)
	}
	return bytes.NewReader(append(text, '\n')), nil
}
