package main

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"colabrelay/relay/pairing"
	"colabrelay/relay/tools"
	"colabrelay/relay/transfer"
)

// Bounds of RELAY_HOLD. Hosts cut calls after 60 s and more, the strictest of the
// patient ones after 240 s.
const (
	defaultHold = 45 * time.Second
	leastHold   = time.Second
	mostHold    = 230 * time.Second
)

// settings reads one setting: a flag when given, else the environment. An empty
// value counts as unset.
type settings struct {
	getenv func(string) string
	given  map[string]*string // by environment name
}

// flagNames are the settings with a flag. Secrets have none: other users see a
// program's arguments.
var flagNames = []struct{ flag, env, usage string }{
	{"url", "COLAB_URL", "the executor's public URL, in place of a pairing"},
	{"secret-file", "COLAB_SECRET_FILE", "file that holds the executor's secret"},
	{"save-dir", "LOCAL_SAVE_DIR", "folder for pictures and long outputs (default ~/colab_results)"},
	{"checkpoint-dir", "CHECKPOINT_DIR", "folder for checkpoints (default in the user's cache folder)"},
	{"hold", "RELAY_HOLD", "how long a call may wait, at most 230s (default 45s)"},
}

func (s *settings) flags(fs *pflag.FlagSet) {
	s.given = map[string]*string{}
	for _, f := range flagNames {
		s.given[f.env] = fs.String(f.flag, "", f.usage+"; environment: "+f.env)
	}
}

func (s settings) get(name string) string {
	if v := s.given[name]; v != nil && *v != "" {
		return *v
	}
	return s.getenv(name)
}

// config is what the MCP server runs with. Problems are all faults found; the
// other fields are usable in spite of them.
type config struct {
	saveDir       string
	checkpointDir string
	hold          time.Duration
	keep          tools.Keep
	pairings      *pairing.Store // nil with a problem
	guard         *transfer.Guard
	problems      []error
}

// load reads and checks all settings.
func load(s settings) config {
	var c config
	fault := func(format string, args ...any) { c.problems = append(c.problems, fmt.Errorf(format, args...)) }
	c.hold = defaultHold
	if text := s.get("RELAY_HOLD"); text != "" {
		hold, err := time.ParseDuration(text)
		switch {
		case err != nil:
			fault("RELAY_HOLD is %q: write a duration such as 45s", text)
		case hold < leastHold || hold > mostHold:
			fault("RELAY_HOLD is %s: it must be from %s to %s", hold, leastHold, mostHold)
		default:
			c.hold = hold
		}
	}
	c.keep = loadKeep(s, fault)
	var err error
	if c.saveDir, err = folder(s, "LOCAL_SAVE_DIR", os.UserHomeDir, "colab_results"); err != nil {
		fault("LOCAL_SAVE_DIR: %v", err)
	}
	if c.checkpointDir, err = folder(s, "CHECKPOINT_DIR", os.UserCacheDir, filepath.Join("colab-relay", "checkpoints")); err != nil {
		fault("CHECKPOINT_DIR: %v", err)
	}
	if c.pairings, err = openPairings(); err != nil {
		fault("%v", err)
	}
	if c.guard, err = newGuard(s, c.checkpointDir); err != nil {
		fault("%v", err)
	}
	if s.get("COLAB_URL") != "" {
		if _, err := pairing.Resolve(pairing.EnvName, s.get, c.pairings); err != nil {
			fault("%v", err)
		}
	}
	return c
}

// newGuard keeps uploads from the relay's own secrets, and from those of the user that
// RELAY_UPLOAD_ALLOW does not list.
func newGuard(s settings, checkpointDir string) (*transfer.Guard, error) {
	own, err := pairing.DefaultDir()
	if err != nil {
		return nil, fmt.Errorf("there is no folder for pairings: %v", err)
	}
	g := &transfer.Guard{Never: []string{own, checkpointDir}}
	g.Home, _ = os.UserHomeDir() // without one there are no keys in it
	for _, path := range filepath.SplitList(s.get("RELAY_UPLOAD_ALLOW")) {
		if rest, home := strings.CutPrefix(path, "~/"); home {
			if path, err = under(os.UserHomeDir, rest); err != nil {
				return g, fmt.Errorf("RELAY_UPLOAD_ALLOW: %v", err)
			}
		}
		if !filepath.IsAbs(path) {
			return g, fmt.Errorf("RELAY_UPLOAD_ALLOW has %q: write absolute paths, or ones that begin with ~/, with %q between", path, filepath.ListSeparator)
		}
		g.Permit = append(g.Permit, path)
	}
	return g, nil
}

func openPairings() (*pairing.Store, error) {
	dir, err := pairing.DefaultDir()
	if err != nil {
		return nil, fmt.Errorf("there is no folder for pairings: %v", err)
	}
	return pairing.Open(dir), nil
}

// folder is the setting's folder, or name under base; it is made when missing.
func folder(s settings, setting string, base func() (string, error), name string) (string, error) {
	path := s.get(setting)
	var err error
	switch rest, home := strings.CutPrefix(path, "~/"); {
	case path == "":
		path, err = under(base, name)
	case home: // hosts pass env values on without a shell that would expand it
		path, err = under(os.UserHomeDir, rest)
	}
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err == nil {
		err = os.MkdirAll(path, 0o700)
	}
	return path, err
}

func under(base func() (string, error), name string) (string, error) {
	dir, err := base()
	return filepath.Join(dir, name), err
}

// LogValue is what the log may hold: no secret is in here.
func (c config) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("save_dir", c.saveDir), slog.String("checkpoint_dir", c.checkpointDir),
		slog.Duration("hold", c.hold), slog.Any("keep", c.keep), slog.Int("problems", len(c.problems)),
	)
}
