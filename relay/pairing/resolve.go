package pairing

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"colabrelay/shared/auth"
)

// Resolve says which runtime a call means: the one it names; else env when
// COLAB_URL is set and not empty; else the one named default; else the only one
// paired. Otherwise the error (ErrNotPaired or ErrAmbiguous) lists the names.
func Resolve(name string, getenv func(string) string, store *Store) (Runtime, error) {
	if name == EnvName || name == "" && getenv("COLAB_URL") != "" {
		return fromEnv(getenv)
	}
	if name != "" {
		r, err := store.Get(name)
		if err != nil {
			return r, err
		}
		return r.connected()
	}
	all, err := store.load()
	if err != nil {
		return Runtime{}, err
	}
	if r, ok := all[DefaultName]; ok {
		return r.connected()
	}
	if len(all) > 1 { // one that can't be used is not meant while others can
		maps.DeleteFunc(all, func(_ string, r Runtime) bool { return r.URL == "" })
	}
	switch len(all) {
	case 0:
		return Runtime{}, fmt.Errorf("%w: %s", ErrNotPaired, nothingYet)
	case 1:
		for _, only := range all {
			return only.connected()
		}
	}
	return Runtime{}, fmt.Errorf("%w and none is named %q: say which one: %s", ErrAmbiguous, DefaultName, names(all))
}

// connected is r, or ErrNoAddress with what to do while its address is not known.
func (r Runtime) connected() (Runtime, error) {
	if r.URL != "" {
		return r, nil
	}
	return Runtime{}, fmt.Errorf("runtime %q is %w: start its executor with the secret that `relay init --name %s` prints, then run `relay pair --name %s URL` with the public URL that the executor prints",
		r.Name, ErrNoAddress, r.Name, r.Name)
}

const nothingYet = "nothing is paired yet: start the executor's Colab cell, then run `relay pair` and paste what the cell prints"

// fromEnv reads COLAB_URL and COLAB_SECRET or COLAB_SECRET_FILE.
func fromEnv(getenv func(string) string) (Runtime, error) {
	address := getenv("COLAB_URL")
	if address == "" {
		return Runtime{}, fmt.Errorf("%w: runtime %q was asked for but COLAB_URL is not set", ErrNotPaired, EnvName)
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
		return secret, errors.New("COLAB_URL is set without COLAB_SECRET or COLAB_SECRET_FILE: set one, or unset COLAB_URL to use what `relay pair` stored")
	}
	if err != nil {
		return secret, fmt.Errorf("%s: %v", source, err)
	}
	return secret, nil
}

// unknown explains a name that is not stored.
func unknown(name string, all map[string]Runtime) string {
	if len(all) == 0 {
		return fmt.Sprintf("no runtime named %q; %s", name, nothingYet)
	}
	return fmt.Sprintf("no runtime named %q; paired are %s", name, names(all))
}

// names lists them sorted and quoted.
func names(all map[string]Runtime) string {
	quoted := slices.Sorted(maps.Keys(all))
	for i, name := range quoted {
		quoted[i] = fmt.Sprintf("%q", name)
	}
	return strings.Join(quoted, ", ")
}
