package pairing

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"colabrelay/shared/auth"
)

const (
	// fileVersion 2 may hold runtimes without a URL, which version 1 took for damage.
	fileVersion = 2
	maxFile     = 1 << 20 // bytes; thousands of runtimes
)

// file is runtimes.json.
type file struct {
	Version  int              `json:"version"`
	Runtimes map[string]entry `json:"runtimes"`
}

// entry holds the secret in clear: the file is for this user only (0600).
type entry struct {
	URL    string `json:"url,omitempty"`
	Secret string `json:"secret"`
}

// decode reads the file. ErrDamaged means that its content is lost to us; a
// newer version is another error, since a newer relay can still read it.
func decode(r io.Reader) (map[string]Runtime, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read the paired runtimes: %v", err)
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("%w: larger than %d bytes", ErrDamaged, maxFile)
	}
	var f file
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, fmt.Errorf("%w: %v", ErrDamaged, err)
	}
	switch {
	case f.Version > fileVersion:
		return nil, fmt.Errorf("the list of paired runtimes has version %d and this relay knows %d: use the newer relay", f.Version, fileVersion)
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
		all[name] = Runtime{Name: name, URL: e.URL, Secret: secret}
	}
	return all, nil
}

func encode(all map[string]Runtime) (io.Reader, error) {
	f := file{Version: fileVersion, Runtimes: make(map[string]entry, len(all))}
	for name, r := range all {
		f.Runtimes[name] = entry{URL: r.URL, Secret: r.Secret.Reveal()}
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
