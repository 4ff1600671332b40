// Package hostconfig adds the relay to an MCP host's own configuration file and removes
// it again. It keeps everything else in the file byte for byte.
//
// It must not change a file that it cannot parse, and it starts no host. Start reading at
// Hosts, Plan and PlanRemoval; json.go and toml.go edit the texts.
package hostconfig

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"colabrelay/shared/bounded"
	"colabrelay/shared/keep"
)

// serverName is the key of the relay's entry in a host's list of MCP servers.
const serverName = "colab-relay"

// maxFile bounds a file, in bytes. It is large because Claude Code also keeps histories
// in its file.
const maxFile = 32 << 20

// Errors that callers distinguish.
var (
	// ErrForm: this package cannot edit the file.
	ErrForm = errors.New("the file was not changed")
	// ErrNotInstalled: the host does not start a relay.
	ErrNotInstalled = errors.New("not installed")
	// ErrOther: the relay's name stands for another program.
	ErrOther = errors.New("it starts another program")
	// ErrChanged: another program wrote the file between Plan and Write.
	ErrChanged = errors.New("another program has just written the file")
)

// Command is what a host starts.
type Command struct {
	Path string
	Args []string
	// Amend returns the arguments of an entry that already starts a relay; nil keeps them.
	Amend func(args []string) []string
}

// argsAfter returns the arguments of an entry that has these until now.
func (c Command) argsAfter(have entry) []string {
	switch {
	case have.Args == nil || !IsRelay(have.Command):
		return c.Args
	case c.Amend != nil:
		return c.Amend(have.Args)
	}
	return have.Args
}

// Change is what Write does to a file.
type Change struct {
	Path     string // with symbolic links followed
	Entry    string // the relay's entry after the change, or the entry that is removed
	After    Entry  // the entry after the change, as the host reads it
	Replaces string // the program that the host starts until now under the relay's name, if it is no relay
	Backup   string // the copy of the file as it was before the relay's first change; empty if there is none
	Deletes  bool   // the file is deleted, because the relay created it
	Restored bool   // the file becomes what it was before the relay's first change

	old, new []byte
	missing  bool   // the file does not exist yet
	backUp   bool   // Write makes the backup
	root     string // the host's folder, which is deleted with the file if it is empty then
}

// None reports that the file needs no change.
func (c Change) None() bool { return !c.missing && !c.Deletes && bytes.Equal(c.old, c.new) }

// Plan computes the change that makes the host start command. It writes nothing. If it
// returns ErrForm, ByHand says what a person can do.
func Plan(t Target, command Command) (Change, error) {
	path, old, missing, err := t.read()
	if err != nil {
		return Change{}, err
	}
	edited, err := t.Host.edit(old, command)
	if err != nil {
		return Change{}, fmt.Errorf("%q: %w: %w", path, ErrForm, err)
	}
	c := Change{Path: path, old: old, new: edited, missing: missing}
	after, _, _ := t.Host.entry(edited)
	c.Entry = t.Host.show(after)
	c.After, _, _ = t.effective(edited)
	if before, exists, _ := t.Host.entry(old); exists && !IsRelay(before.Command) {
		c.Replaces = before.Command
	}
	if !missing && !c.None() {
		_, none, err := read(backupOf(path))
		if err != nil {
			return Change{}, err
		}
		c.Backup, c.backUp = backupOf(path), none
	}
	return c, nil
}

// PlanRemoval computes the change that removes the relay's entry. If nothing else has
// changed since the relay was added, the file becomes what it was before. It returns
// ErrNotInstalled if there is no entry, ErrOther if the entry starts another program, and
// ErrForm if a person must remove it.
func PlanRemoval(t Target) (Change, error) {
	path, old, missing, err := t.read()
	if err != nil {
		return Change{}, err
	}
	have, exists, err := t.Host.entry(old)
	switch {
	case err != nil:
		return Change{}, fmt.Errorf("%q: %w: %w", path, ErrForm, err)
	case missing || !exists:
		return Change{}, fmt.Errorf("%q: %w", path, ErrNotInstalled)
	case !IsRelay(have.Command):
		return Change{}, fmt.Errorf("the entry %q in %q was not removed: %w, %q", serverName, path, ErrOther, have.Command)
	}
	c := Change{Path: path, Entry: t.Host.show(have), old: old, root: t.sign}
	if !strings.HasPrefix(path, t.sign) {
		c.root = filepath.Dir(path)
	}
	link, _ := os.Lstat(t.Path)
	err = c.undo(t.Host, have, link != nil && link.Mode().IsRegular())
	if err != nil {
		return Change{}, fmt.Errorf("%q: %w: %w", path, ErrForm, err)
	}
	return c, nil
}

// undo computes the text without the relay's entry. The relay's first change is known to
// be the only one if it gives the present text when it is applied to the backup again. A
// file behind a link is not deleted.
func (c *Change) undo(h Host, have entry, mayDelete bool) (err error) {
	command := Command{Path: have.Command, Args: have.Args}
	backup, none, err := read(backupOf(c.Path))
	if err != nil {
		return err
	}
	again, err := h.edit(backup, command)
	same := err == nil && bytes.Equal(again, c.old)
	if none {
		if c.Deletes = same && mayDelete; c.Deletes {
			return nil
		}
		c.new, err = h.remove(c.old)
		return err
	}
	c.Backup = backupOf(c.Path)
	before, existed, _ := h.entry(backup)
	if same && !(existed && IsRelay(before.Command)) {
		c.new, c.Restored = backup, true
		return nil
	}
	if c.new, err = h.remove(c.old); err == nil {
		c.Restored = bytes.Equal(c.new, backup)
	}
	return err
}

// Write changes the file atomically, after a backup if there is none yet. A backup that
// has become equal to the file is deleted.
func (c Change) Write() error {
	now, missing, err := read(c.Path)
	if err != nil {
		return err
	}
	if missing != c.missing || !bytes.Equal(now, c.old) {
		return fmt.Errorf("%q: %w", c.Path, ErrChanged)
	}
	if c.Deletes {
		if err := os.Remove(c.Path); err != nil {
			return fmt.Errorf("delete %q: %v", c.Path, err)
		}
		c.removeFolders()
		return nil
	}
	mode := fs.FileMode(0o600)
	if info, err := os.Stat(c.Path); err == nil {
		mode = info.Mode().Perm()
	}
	if c.backUp {
		if err := keep.WriteFileMode(c.Backup, c.old, mode); err != nil {
			return fmt.Errorf("back up %q, which was not changed: %v", c.Path, err)
		}
	}
	if err := keep.WriteFileMode(c.Path, c.new, mode); err != nil {
		return fmt.Errorf("write %q: %v", c.Path, err)
	}
	if c.Restored {
		os.Remove(c.Backup)
	}
	return nil
}

// removeFolders deletes the folders of a deleted file up to the host's own, if they are
// empty: the host would count as found because of them.
func (c Change) removeFolders() {
	dir := filepath.Dir(c.Path)
	for strings.HasPrefix(dir, c.root) && os.Remove(dir) == nil {
		dir = filepath.Dir(dir)
	}
}

// backupOf is where the copy of a file is kept: the only one, with the mode of the file.
func backupOf(path string) string { return path + ".before-colab-relay" }

// Installed returns the relay's entry as the host reads it. It returns ErrNotInstalled if
// there is none.
func Installed(t Target) (Entry, error) {
	path, text, missing, err := t.read()
	switch {
	case missing:
		return Entry{}, ErrNotInstalled
	case path == "":
		return Entry{}, err
	}
	have, exists := Entry{}, false
	if err == nil {
		have, exists, err = t.effective(text)
	}
	switch {
	case err != nil:
		return Entry{}, fmt.Errorf("unreadable: %s", path)
	case !exists:
		return Entry{}, ErrNotInstalled
	}
	return have, nil
}

// MayStart reports whether the target has the relay's entry, or cannot be read.
func (t Target) MayStart() bool {
	_, err := Installed(t)
	return !errors.Is(err, ErrNotInstalled)
}

// read returns the path of the target with links followed, empty for one that cannot be, and the
// text there.
func (t Target) read() (path string, text []byte, missing bool, err error) {
	if path, err = resolve(t.Path); err != nil {
		return "", nil, false, err
	}
	text, missing, err = read(path)
	return path, text, missing, err
}

func read(path string) (text []byte, missing bool, err error) {
	text, err = bounded.ReadFile(path, maxFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, true, nil
	case errors.Is(err, bounded.ErrTooLong), errors.Is(err, bounded.ErrNotFile):
		return nil, false, fmt.Errorf("%q: %w: %w", path, ErrForm, err)
	case err != nil:
		return nil, false, fmt.Errorf("read the host's config: %v", err)
	}
	if bytes.HasPrefix(text, []byte("\xff\xfe")) || bytes.HasPrefix(text, []byte("\xfe\xff")) || bytes.IndexByte(text, 0) >= 0 {
		return nil, false, fmt.Errorf("%q: %w: it is not UTF-8 but probably UTF-16; save it as UTF-8", path, ErrForm)
	}
	return text, false, nil
}

// Entry is the relay's entry as the host reads it.
type Entry struct {
	Command string
	Off     string // why the host does not start it; empty if it does

	env map[string]string
}

// network are the variables with which Go's HTTP client reaches the network. The last two
// count on Linux only.
var network = []string{"HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR"}

// Differing names the variables of the network that an entry does not set as this user's
// shell does. A value with a $ is the host's to expand.
func (u User) Differing(e Entry) (names []string) {
	for _, name := range network {
		lower := strings.ToLower(name)
		own := cmp.Or(e.env[name], e.env[lower])
		if own != cmp.Or(u.Getenv(name), u.Getenv(lower)) && !strings.Contains(own, "$") && (u.OS == "linux" || strings.HasSuffix(name, "PROXY")) {
			names = append(names, name)
		}
	}
	return names
}

// effective returns the relay's entry in a text of the target.
func (t Target) effective(text []byte) (e Entry, exists bool, err error) {
	have, exists, err := t.Host.entry(text)
	e = Entry{Command: have.Command, Off: t.off(have.all, have.own), env: map[string]string{}}
	if !exists && (t.sign != "" || e.Off == "") { // a project's file may switch off the user's entry
		return Entry{}, false, err
	}
	env, _ := at(have.own, "env").(map[string]any)
	for name, value := range env {
		e.env[name] = fmt.Sprint(value)
	}
	passed, _ := at(have.own, "env_vars").([]any) // Codex gives it those of its own
	for _, name := range passed {
		e.env[fmt.Sprint(name)] = "$"
	}
	return e, true, err
}

// entry returns the relay's entry in a text. It does not decode into a struct, because that
// ignores upper and lower case, and mistakes in other parts.
func (h Host) entry(text []byte) (have entry, exists bool, err error) {
	if have.all, err = h.values(text); err != nil {
		return have, false, err
	}
	servers, _ := at(have.all, cmp.Or(h.list, tomlList)).(map[string]any)
	have.own, exists = servers[serverName]
	own, ok := have.own.(map[string]any)
	have.Type, _ = own["type"].(string)
	have.Command, _ = own["command"].(string)
	if exists && (!ok || have.Command == "" && own["command"] != nil) {
		return have, false, fmt.Errorf("its entry %q does not describe a server", serverName)
	}
	args, ok := own["args"].([]any)
	if ok {
		have.Args = []string{}
	}
	for _, arg := range args {
		have.Args = append(have.Args, fmt.Sprint(arg))
	}
	return have, exists, nil
}

// off says why the host does not start an entry of its file.
func (t Target) off(all, own any) string {
	allowed, _ := at(all, "mcp", "allowed").([]any)
	switch {
	case at(own, "enabled") == false:
		return `its entry has "enabled" set to false`
	case at(own, "disabled") == true:
		return `its entry has "disabled" set to true`
	case lists(at(all, "mcp", "excluded")):
		return `"mcp.excluded" names it`
	case len(allowed) > 0 && !lists(allowed):
		return `"mcp.allowed" does not name it`
	case lists(at(all, "projects", t.folder, "disabledMcpServers")): // Claude Code's /mcp
		return "it is switched off for the present folder"
	case t.Host.Name == "gemini":
		path := filepath.Join(filepath.Dir(t.Path), "mcp-server-enablement.json") // of gemini mcp disable
		text, _, _ := read(path)
		if switches, _ := t.Host.values(text); at(switches, serverName, "enabled") == false {
			return path + " has it disabled"
		}
	}
	return ""
}

// values decodes a whole file.
func (h Host) values(text []byte) (all any, err error) {
	if h.list == "" {
		f, err := readTOML(text)
		return f.all, err
	}
	bare := bytes.Clone(bytes.TrimPrefix(text, byteOrderMark)) // Standardize writes into it
	if len(bytes.TrimSpace(bare)) == 0 {
		return nil, nil
	}
	root, err := parse(bare)
	if err != nil {
		return nil, err
	}
	root.Standardize()
	d := json.NewDecoder(bytes.NewReader(root.Pack()))
	d.UseNumber() // a float64 does not hold every number
	return all, d.Decode(&all)
}

// at returns the value at a path of keys, or nil.
func at(value any, keys ...string) any {
	for _, key := range keys {
		object, _ := value.(map[string]any)
		value = object[key]
	}
	return value
}

// lists reports whether a value is a list with the relay's name.
func lists(value any) bool {
	names, _ := value.([]any)
	return slices.ContainsFunc(names, func(name any) bool { return strings.EqualFold(fmt.Sprint(name), serverName) })
}

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
