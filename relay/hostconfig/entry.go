package hostconfig

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

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
		return parseTOML(text)
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
