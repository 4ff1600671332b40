package pairing

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"colabrelay/relay/suggest"
	"colabrelay/shared/auth"
)

// Resolve returns the runtime that a call uses: the one it names; without a name, the
// one that the environment describes, if it does; then the one that Choose named; then the one
// named default; then the only one paired. Otherwise it returns ErrNotPaired or ErrAmbiguous with a list of the names.
func Resolve(name string, getenv func(string) string, store *Store) (Runtime, error) {
	if name == EnvName || name == "" && InEnvironment(getenv) {
		return fromEnv(getenv)
	}
	all, err := store.load()
	if err != nil {
		return Runtime{}, err
	}
	if r, ok := all[name]; ok {
		return r.connected()
	}
	if name != "" {
		if InEnvironment(getenv) {
			all[EnvName] = Runtime{}
		}
		return Runtime{}, unknown(name, all)
	}
	if r, ok := chosen(all); ok {
		return r.connected()
	}
	if r, ok := all[DefaultName]; ok {
		return r.connected()
	}
	if len(all) > 1 { // a runtime without an address is used only if there is no other
		maps.DeleteFunc(all, func(_ string, r Runtime) bool { return r.URL == "" })
	}
	switch len(all) {
	case 0:
		return Runtime{}, fmt.Errorf("this computer is %w with a runtime yet: %s", ErrNotPaired, howToPair)
	case 1:
		for _, only := range all {
			return only.connected()
		}
	}
	return Runtime{}, fmt.Errorf("%w and none is the default: name one of %s, or choose one with `colab-relay use NAME`", ErrAmbiguous, names(all))
}

// connected returns r, or ErrNoAddress and what to do if its address is not known yet.
func (r Runtime) connected() (Runtime, error) {
	if r.URL != "" {
		return r, nil
	}
	return Runtime{}, fmt.Errorf("runtime %q is %w: start its executor with the secret that `colab-relay init --name %s` prints, then run `colab-relay pair --name %s URL` with the public URL that the executor prints",
		r.Name, ErrNoAddress, r.Name, r.Name)
}

// howToPair completes the errors of a computer without any pairing.
const howToPair = "start the executor (on Colab: run the cell that `colab-relay bootstrap` prints), then run `colab-relay pair` and paste the pairing string that it prints; for a machine that you reach by SSH, run `colab-relay ssh HOST`"

// InEnvironment says whether the environment describes a runtime, by COLAB_URL or
// COLAB_PAIRING.
func InEnvironment(getenv func(string) string) bool {
	return getenv("COLAB_URL") != "" || getenv("COLAB_PAIRING") != ""
}

// fromEnv makes a runtime of COLAB_URL and COLAB_SECRET or COLAB_SECRET_FILE, or else of the
// pairing string in COLAB_PAIRING, which the settings dialog of an MCP host can ask for.
func fromEnv(getenv func(string) string) (Runtime, error) {
	address := getenv("COLAB_URL")
	if pairing := getenv("COLAB_PAIRING"); address == "" && pairing != "" {
		p, err := auth.ParsePairing(pairing)
		if err != nil {
			return Runtime{}, fmt.Errorf("COLAB_PAIRING is %w: paste the whole line that the executor printed, from colab-relay: to its end", err)
		}
		return Runtime{Name: EnvName, URL: strings.TrimRight(p.URL, "/"), Secret: p.Secret}, nil
	}
	if address == "" {
		return Runtime{}, fmt.Errorf("runtime %q is %w: COLAB_URL is not set", EnvName, ErrNotPaired)
	}
	if err := auth.CheckURL(address); err != nil {
		return Runtime{}, fmt.Errorf("COLAB_URL: %v", err)
	}
	secret, err := secretOf(getenv)
	if err != nil {
		return Runtime{}, err
	}
	return Runtime{Name: EnvName, URL: strings.TrimRight(address, "/"), Secret: secret}, nil
}

func secretOf(getenv func(string) string) (secret auth.Secret, err error) {
	source := "COLAB_SECRET"
	text, file := getenv(source), getenv("COLAB_SECRET_FILE")
	switch {
	case text != "":
		secret, err = auth.NewSecret(text)
	case file != "":
		source = "COLAB_SECRET_FILE"
		secret, err = auth.ReadSecretFile(file)
	default:
		return secret, errors.New("COLAB_URL is set without COLAB_SECRET or COLAB_SECRET_FILE: set one of them, or unset COLAB_URL to use the runtimes paired by `colab-relay pair`")
	}
	if err != nil {
		return secret, fmt.Errorf("%s: %v", source, err)
	}
	return secret, nil
}

// unknown describes a name that is not in the list.
func unknown(name string, all map[string]Runtime) error {
	if len(all) == 0 {
		return fmt.Errorf("runtime %q is %w, and no runtime is paired on this computer: %s", name, ErrNotPaired, howToPair)
	}
	meant := suggest.Meant(name, slices.Sorted(maps.Keys(all)))
	if len(all) == 1 {
		return fmt.Errorf("runtime %q is %w%s; the only runtime is %s", name, ErrUnknownName, meant, names(all))
	}
	return fmt.Errorf("runtime %q is %w%s; the runtimes are %s", name, ErrUnknownName, meant, names(all))
}

// names lists the runtimes, sorted and quoted.
func names(all map[string]Runtime) string {
	quoted := slices.Sorted(maps.Keys(all))
	for i, name := range quoted {
		quoted[i] = fmt.Sprintf("%q", name)
	}
	return strings.Join(quoted, ", ")
}
