// Package pairing stores which runtimes this laptop is paired with, the secret of each
// (even before its address is known), and which VM and kernel of each the relay last
// saw. It also decides which runtime a call uses.
//
// It must not talk to a runtime, use a list that has changed since (a running relay uses a
// pairing made by `colab-relay pair` from its next call on), or drop a pairing it cannot read.
// Start reading at Store here and Resolve.
package pairing

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"colabrelay/relay/plain"
	"colabrelay/relay/suggest"
	"colabrelay/shared/auth"
	"colabrelay/shared/keep"
	"colabrelay/shared/lazy"
)

const (
	// DefaultName is the name that `colab-relay pair` uses without --name.
	DefaultName = "default"
	// EnvName names the runtime that COLAB_URL and COLAB_SECRET describe. It is
	// never stored.
	EnvName = "env"
)

// Errors that callers distinguish.
var (
	ErrNotPaired = errors.New("not paired")
	// ErrUnknownName means ErrNotPaired for one name, while other runtimes are paired.
	ErrUnknownName = fmt.Errorf("%w", ErrNotPaired)
	ErrAmbiguous   = errors.New("several runtimes are paired")
	ErrDamaged     = keep.ErrDamaged // the list cannot be read; Put keeps it under another name
	ErrBadName     = errors.New("invalid runtime name")
	ErrNoAddress   = errors.New("not connected yet")
)

// Runtime is one executor this laptop may use.
type Runtime struct {
	Name   string      `json:"-"`
	URL    string      `json:"url,omitempty"` // base URL without a trailing slash; empty before it is known
	Secret auth.Secret `json:"-"`
	Chosen bool        `json:"-"` // by Choose; Put keeps what it was
	// Provider names what makes the connections to URL if they need more than the URL, such
	// as the tokens of Google's proxy; empty for all others. VMID is the VM's id there.
	Provider string `json:"provider,omitempty"`
	VMID     string `json:"vm_id,omitempty"`
	// FromPage says that a bridge over Colab's page made the pairing. Its executor ends with
	// the VM and its secret exists nowhere else, so a later bridge may replace it.
	FromPage bool `json:"from_page,omitempty"`
	// SSHHost is the machine whose executor `colab-relay ssh` connects to URL; empty for others.
	SSHHost string `json:"ssh_host,omitempty"`
	// SSHArguments are what followed the host when that command last connected, without --name.
	SSHArguments []string `json:"ssh_arguments,omitempty"`
}

// Store is the list of paired runtimes in a folder. Any number of programs may use it at the
// same time.
type Store struct {
	list keep.File[list]
	seen keep.File[map[string]LastSeen]
}

// Open returns the store in dir. It reads and creates nothing.
func Open(dir string) *Store {
	return &Store{
		list: keep.File[list]{Path: filepath.Join(dir, "runtimes.json"), What: "the list of paired runtimes", Max: maxFile, Version: listVersion, Check: (*list).check},
		seen: keep.File[map[string]LastSeen]{Path: filepath.Join(dir, "lives.json"), What: "what was last seen of the runtimes", Max: maxFile},
	}
}

// OpenDefault returns this user's store.
func OpenDefault() (*Store, error) {
	dir, err := DefaultDir()
	if err != nil {
		return nil, err
	}
	return Open(dir), nil
}

// DefaultDir returns the folder of this user's store.
func DefaultDir() (string, error) {
	config, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("find the folder for pairings: %v", err)
	}
	return filepath.Join(config, "colab-relay"), nil
}

// Path returns the path of the store's file.
func (s *Store) Path() string { return s.list.Path }

var namePattern = lazy.Regexp(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// Before is what a Put replaced. Callers report both to the user.
type Before struct {
	URL    string // the runtime's previous address, if it was a different one
	Damage error  // ErrDamaged, and the name under which the damaged list is kept
}

// Put stores a runtime and replaces the one of the same name. It renames a damaged
// file and starts a new list.
func (s *Store) Put(r Runtime) (Before, error) {
	return s.PutIf(r, func(Runtime) error { return nil })
}

// PutIf is Put, unless allow returns an error for the runtime that has the name now. Nobody
// can change that one in between.
func (s *Store) PutIf(r Runtime, allow func(old Runtime) error) (before Before, err error) {
	if err := r.check(); err != nil {
		return before, err
	}
	r.URL = strings.TrimRight(r.URL, "/")
	before.Damage, err = s.list.Change(func(l *list) error {
		old, found := l.get(r.Name)
		if found {
			if err := allow(old); err != nil {
				return err
			}
		}
		if old.URL != r.URL {
			before.URL = old.URL
		}
		l.put(r)
		return nil
	})
	return before, err
}

// CheckName returns ErrBadName and the rule for a name that no runtime may have.
func CheckName(name string) error {
	if !namePattern().MatchString(name) || name == EnvName {
		return fmt.Errorf("%w %q: use at most 64 letters, digits, dots, dashes and underscores, begin with a letter or digit, and do not use %q", ErrBadName, name, EnvName)
	}
	return nil
}

// check returns an error for a runtime that must not be stored.
func (r Runtime) check() error {
	if err := CheckName(r.Name); err != nil {
		return err
	}
	if err := auth.CheckURL(r.URL); err != nil {
		return fmt.Errorf("runtime %q: %v", r.Name, err)
	}
	if r.Secret.IsZero() {
		return fmt.Errorf("runtime %q has no secret", r.Name)
	}
	if (r.Provider == "") != (r.VMID == "") {
		return fmt.Errorf("runtime %q has provider %q and VM %q: it needs both or neither", r.Name, r.Provider, r.VMID)
	}
	return nil
}

// Remove deletes the runtime of that name and what was last seen of it, or returns
// ErrNotPaired.
func (s *Store) Remove(name string) error {
	return s.RemoveIf(name, func(Runtime) error { return nil })
}

// RemoveIf is Remove, unless allow returns an error for that runtime.
func (s *Store) RemoveIf(name string, allow func(Runtime) error) error {
	err := s.changeOf(name, func(l *list, r Runtime) error {
		if err := allow(r); err != nil {
			return err
		}
		delete(l.Runtimes, name)
		if l.Chosen == name {
			l.Chosen = ""
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.forget(name)
}

// changeOf changes the list, which must have a runtime of that name. A damaged list stays.
func (s *Store) changeOf(name string, change func(*list, Runtime) error) error {
	if _, err := s.Get(name); err != nil { // creates no folder, and moves no damaged file
		return err
	}
	_, err := s.list.Change(func(l *list) error {
		r, found := l.get(name)
		if !found {
			return unknown(name, l.names())
		}
		return change(l, r)
	})
	return err
}

// Get returns the runtime of that name, or ErrNotPaired.
func (s *Store) Get(name string) (Runtime, error) {
	l, err := s.list.Read()
	if err != nil {
		return Runtime{}, err
	}
	if r, ok := l.get(name); ok {
		return r, nil
	}
	return Runtime{}, unknown(name, l.names())
}

// List returns all runtimes, sorted by name.
func (s *Store) List() ([]Runtime, error) {
	l, err := s.list.Read()
	var all []Runtime
	for _, name := range l.names() {
		r, _ := l.get(name)
		all = append(all, r)
	}
	return all, err
}

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
	Runtime
	Clear string `json:"secret"`
}

// check says why a list that was read cannot be used.
func (l *list) check() error {
	for name, e := range l.Runtimes {
		_, err := auth.NewSecret(e.Clear)
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
	secret, err := auth.NewSecret(e.Clear)
	if err != nil {
		panic(err) // see check
	}
	r := e.Runtime
	r.Name, r.Secret, r.Chosen = name, secret, name == l.Chosen
	return r, true
}

// put adds or replaces a runtime. Which one is chosen stays.
func (l *list) put(r Runtime) {
	if l.Runtimes == nil {
		l.Runtimes = map[string]entry{}
	}
	l.Version = listVersion
	l.Runtimes[r.Name] = entry{r, r.Secret.Reveal()}
}

// names returns the names of all runtimes, sorted.
func (l *list) names() []string { return slices.Sorted(maps.Keys(l.Runtimes)) }

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

// Resolve returns the runtime that a call uses: the one it names; without a name, the
// one that the environment describes, if it does; then the one that Choose named; then the one
// named default; then the only one paired. Otherwise it returns ErrNotPaired or ErrAmbiguous with a list of the names.
func Resolve(name string, getenv func(string) string, store *Store) (Runtime, error) {
	if name == EnvName || name == "" && InEnvironment(getenv) {
		return fromEnv(getenv)
	}
	l, err := store.list.Read()
	if err != nil {
		return Runtime{}, err
	}
	if name != "" {
		if r, ok := l.get(name); ok {
			return r.connected()
		}
		names := l.names()
		if InEnvironment(getenv) {
			names = append(names, EnvName)
		}
		return Runtime{}, unknown(name, names)
	}
	for _, usual := range []string{l.Chosen, DefaultName} {
		if r, ok := l.get(usual); ok {
			return r.connected()
		}
	}
	names := l.names()
	if len(names) > 1 { // a runtime without an address is used only if there is no other
		names = slices.DeleteFunc(names, func(name string) bool { return l.Runtimes[name].URL == "" })
	}
	switch len(names) {
	case 0:
		return Runtime{}, fmt.Errorf("this computer is %w with a runtime yet: %s", ErrNotPaired, howToPair)
	case 1:
		only, _ := l.get(names[0])
		return only.connected()
	}
	return Runtime{}, fmt.Errorf("%w and none is the default: name one of %s, or choose one with `colab-relay use NAME`", ErrAmbiguous, quoted(names))
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

// unknown describes a name that is not among those of the runtimes.
func unknown(name string, names []string) error {
	if len(names) == 0 {
		return fmt.Errorf("runtime %q is %w, and no runtime is paired on this computer: %s", name, ErrNotPaired, howToPair)
	}
	meant, are := suggest.Meant(name, names), "runtimes are"
	if len(names) == 1 {
		are = "only runtime is"
	}
	return fmt.Errorf("runtime %q is %w%s; the %s %s", name, ErrUnknownName, meant, are, quoted(names))
}

func quoted(names []string) string { return `"` + strings.Join(names, `", "`) + `"` }

// ErrNoSecret: the runtime has no secret yet.
var ErrNoSecret = errors.New("no secret")

// Origin says where the secret of a runtime that Own returns is from.
type Origin int

const (
	Kept     Origin = iota // the runtime already had it
	Made                   // Own generated it for a runtime without one
	Replaced               // Own generated it instead of an earlier one
)

// Own returns the runtime of that name. It generates the runtime's secret if there is
// none, and replaces it if rotate is true. The runtime has no address until a Put sets one.
func (s *Store) Own(name string, rotate bool) (r Runtime, origin Origin, before Before, err error) {
	if err := CheckName(name); err != nil {
		return r, origin, before, err
	}
	before.Damage, err = s.list.Change(func(l *list) error {
		found := false
		r, found = l.get(name)
		switch {
		case !found:
			r.Name, origin = name, Made
		case rotate:
			origin = Replaced
		}
		if origin != Kept {
			r.Secret = auth.GenerateSecret()
		}
		r.FromPage = false // from now on the person may keep its secret, as in Colab's Secrets
		l.put(r)
		return nil
	})
	return r, origin, before, err
}

// SecretOf returns the secret of the runtime of that name, or ErrNoSecret. An invalid
// name is ErrBadName.
func (s *Store) SecretOf(name string) (auth.Secret, error) {
	if err := CheckName(name); err != nil {
		return auth.Secret{}, err
	}
	r, err := s.Get(name)
	if errors.Is(err, ErrNotPaired) {
		return auth.Secret{}, ErrNoSecret
	}
	return r.Secret, err
}

// Comeback is the next step if nothing answers at the runtime's address, if it is known.
func (r Runtime) Comeback() string {
	if r.SSHHost == "" {
		return ""
	}
	return fmt.Sprintf("Run `%s` in a terminal on this computer, and keep it open: it holds the connection.", r.SSHCommand())
}

// SSHCommand returns the command that connects to the machine of a runtime with an SSHHost, with
// more flags. It is quoted for the shell of this computer.
func (r Runtime) SSHCommand(flags ...string) string {
	words := append([]string{"colab-relay", "ssh", r.SSHHost}, flags...)
	if r.Name != NameOfHost(r.SSHHost) {
		words = append(words, "--name", r.Name)
	}
	return strings.Join(plain.ShellWords(append(words, r.SSHArguments...)), " ")
}

var notInName = lazy.Regexp(`[^A-Za-z0-9._-]+`)

// NameOfHost returns the name that `colab-relay ssh` gives to a runtime without --name. An address
// of ssh may be user@host or ssh://user@host:port.
func NameOfHost(address string) string {
	host := strings.TrimPrefix(address, "ssh://")
	host = host[strings.LastIndex(host, "@")+1:]
	if address != host && strings.HasPrefix(address, "ssh://") {
		host, _, _ = strings.Cut(host, ":")
	}
	return strings.Trim(notInName().ReplaceAllString(host, "-"), "-._")
}

// maxLastSeen bounds the entries of the file; the oldest is dropped first. There are
// fewer pairings, but each value that COLAB_SECRET ever had makes an entry too.
const maxLastSeen = 256

// LastSeen is what the relay last saw of a runtime: which VM, and which kernel on it.
type LastSeen struct {
	InstanceID string    `json:"instance_id,omitempty"`
	KernelID   string    `json:"kernel_id,omitempty"`
	Since      time.Time `json:"since"` // when it was first seen
}

// Updated returns what is seen of a runtime that now has the kernel kernelID, on the VM
// instanceID unless that is empty.
func (s LastSeen) Updated(instanceID, kernelID string) LastSeen {
	s.InstanceID = cmp.Or(instanceID, s.InstanceID)
	if kernelID != s.KernelID {
		s.KernelID, s.Since = kernelID, time.Now()
	}
	return s
}

// Loss says what became of the kernel that was seen before, if another one is seen now.
func (s LastSeen) Loss(now LastSeen) string {
	switch {
	case s.KernelID == "" || s.KernelID == now.KernelID:
		return ""
	case s.InstanceID != "" && s.InstanceID != now.InstanceID:
		return "a new kernel on a new VM: the variables, functions and imports of the old one are gone, and so are its files, except those on Drive"
	}
	return "a new kernel: the variables, functions and imports of the old one are gone"
}

// Key names a runtime in the file of what was last seen. COLAB_URL may differ from one
// host's settings to another's, so for EnvName the key includes the secret's key id.
func (r Runtime) Key() string {
	if r.Name == EnvName {
		return EnvName + " " + r.Secret.KeyID()
	}
	return r.Name
}

// LastSeen returns what was last seen of the runtime with that Key. It is zero when
// nothing was seen, and also when the file cannot be read, because it only serves hints.
func (s *Store) LastSeen(key string) LastSeen {
	entries, _ := s.seen.Read()
	return entries[key]
}

// SaveLastSeen records what was seen of the runtime with that Key, for later relays.
func (s *Store) SaveLastSeen(key string, seen LastSeen) error {
	_, err := s.seen.Change(func(entries *map[string]LastSeen) error { // a damaged file loses only hints
		if *entries == nil {
			*entries = map[string]LastSeen{}
		}
		(*entries)[key] = seen
		for len(*entries) > maxLastSeen {
			delete(*entries, oldest(*entries))
		}
		return nil
	})
	return err
}

// forget drops the entry of that Key.
func (s *Store) forget(key string) error {
	if s.LastSeen(key) == (LastSeen{}) {
		return nil
	}
	_, err := s.seen.Change(func(entries *map[string]LastSeen) error {
		delete(*entries, key)
		return nil
	})
	return err
}

func oldest(entries map[string]LastSeen) (key string) {
	for k, seen := range entries {
		if key == "" || seen.Since.Before(entries[key].Since) {
			key = k
		}
	}
	return key
}

// OnLoopback reports whether an address is on this computer.
func OnLoopback(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() == "localhost" || err == nil && ip.IsLoopback()
}
