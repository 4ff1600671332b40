// Package config reads the relay's settings and checks them.
//
// It reports every wrong setting together, and never logs a secret. Start reading at
// Settings and Load.
package config

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/pflag"

	"colabrelay/relay/chunked"
	"colabrelay/relay/pairing"
	"colabrelay/relay/program"
	"colabrelay/relay/render"
	"colabrelay/relay/toolsets"
	"colabrelay/relay/transfer"
	"colabrelay/shared/bounded"
	"colabrelay/shared/filename"
	"colabrelay/shared/lazy"
)

// Bounds of RELAY_HOLD. The MCP hosts that give up early do so after 60 s; of those that
// wait for minutes, the strictest gives up after 240 s.
const (
	defaultHold = 45 * time.Second
	leastHold   = time.Second
	mostHold    = 230 * time.Second
)

// Bounds of RELAY_LONG_WAIT. Claude Code ends a call after 30 minutes without progress, which the
// relay reports, and after about a day in any case.
const (
	defaultLongWait = 10 * time.Minute
	mostLongWait    = 24 * time.Hour
)

// Config is what the relay runs with. Problems lists all wrong settings; the other
// fields are usable in spite of them.
type Config struct {
	SaveDir       string
	CheckpointDir string
	Hold          time.Duration
	LongWait      time.Duration // of get_execution, in hosts that work on while a call lasts
	Structured    bool          // answers have JSON too
	TextLimit     int           // characters of a run's text
	Pictures      int           // bytes of the largest picture that an answer has; -1 for none; 0 leaves it to what is known of the client
	Keep          chunked.Keep
	TransferDir   string         // of the records about transfers; empty for none
	NotebookDirs  []string       // where tools may use notebooks, beside the usual folders
	PairingField  string         // field of a host's extension that takes the pairing string; empty if there is none
	DownloadDirs  []string       // where tools may save downloads, beside SaveDir
	PagePort      int            // where Colab's page connects, on loopback; 0 for a free port
	VMDir         string         // of the record of VMs that this computer started, and of the login for them
	HistoryDir    string         // of the runs that are kept; empty when none are
	HistoryBytes  int64          // bound of that folder
	Pairings      *pairing.Store // nil when there is no folder for it, which is a problem
	Guard         *transfer.Guard
	Problems      []error
}

// Load reads and checks all settings, and creates the folders they name.
func Load(s Settings) Config {
	r := &reader{Settings: s}
	c := Config{
		Hold:       r.duration("RELAY_HOLD", defaultHold, leastHold, mostHold),
		LongWait:   r.duration("RELAY_LONG_WAIT", defaultLongWait, leastHold, mostLongWait),
		Structured: r.onOff("RELAY_STRUCTURED"),
		TextLimit: number(r, "RELAY_TEXT_LIMIT", render.DefaultTextLimit, render.LeastTextLimit, render.MostTextLimit,
			fmt.Sprintf("a number of characters from %%v to %%v, such as %d", render.DefaultTextLimit)),
		Pictures: r.pictures(),
	}
	var err error
	if text := s.Get("RELAY_TOOLSETS"); text != "" {
		_, err = toolsets.Parse(text)
		r.check("RELAY_TOOLSETS ", err)
	}
	c.NotebookDirs, err = pathList(s, "RELAY_NOTEBOOK_DIRS")
	r.check("", err)
	c.PairingField, err = pairingField(s.Get("RELAY_PAIRING_FIELD"))
	r.check("RELAY_PAIRING_FIELD ", err)
	c.DownloadDirs, err = downloadDirs(s)
	r.check("", err)
	c.Keep = chunked.Keep{
		Every:       r.duration("RELAY_KEEP_EVERY", 30*time.Second, leastKeepEvery, mostKeepEvery),
		Percent:     number(r, "RELAY_KEEP_PERCENT", 5.0, 0, 100, fromTo),
		MaxBytes:    int64(number(r, "RELAY_KEEP_MB", 64.0, 0, mostKeepMB, fromTo) * (1 << 20)),
		TunnelBytes: int64(number(r, "RELAY_KEEP_TUNNEL_MB", 100.0, 0, mostTunnelMB, fromTo) * (1 << 20)),
	}
	_, _, err = Ngrok(s)
	r.check("", err)
	c.HistoryDir, c.HistoryBytes = r.history()
	if s.Get("RELAY_PAGE_PORT") != "0" {
		c.PagePort = number(r, "RELAY_PAGE_PORT", 0, leastPagePort, mostPagePort, "a port from %v to %v, or 0 for a free one")
	}
	c.VMDir, c.TransferDir = ownDir("vms"), ownDir("transfers")
	c.SaveDir, err = folder(s, "LOCAL_SAVE_DIR", os.UserHomeDir, "colab_results")
	r.check("LOCAL_SAVE_DIR: ", err)
	c.CheckpointDir, err = folder(s, "CHECKPOINT_DIR", os.UserCacheDir, filepath.Join("colab-relay", "checkpoints"))
	r.check("CHECKPOINT_DIR: ", err)
	c.Pairings, err = pairing.OpenDefault()
	r.check("", err)
	c.Guard, err = newGuard(s, c.CheckpointDir)
	r.check("", err)
	if pairing.InEnvironment(s.Get) {
		_, err = pairing.Resolve(pairing.EnvName, s.Get, c.Pairings)
		r.check("", err)
	}
	c.Problems = r.problems
	return c
}

// Err is nil when all settings are right, else an error that lists the wrong ones.
func (c Config) Err() error {
	if len(c.Problems) == 0 {
		return nil
	}
	return fmt.Errorf("wrong settings: %w", errors.Join(c.Problems...))
}

// reader reads one setting after another, and collects what is wrong. A wrong one counts as unset.
type reader struct {
	Settings
	problems []error
}

// check notes an error, if it is one, after the name of its setting.
func (r *reader) check(setting string, err error) {
	if err != nil {
		r.problems = append(r.problems, fmt.Errorf("%s%v", setting, err))
	}
}

// wrong notes that a setting has a value of another form than use says.
func (r *reader) wrong(variable, use string) {
	r.problems = append(r.problems, fmt.Errorf("%s is %q: use %s", variable, r.Get(variable), use))
}

func (r *reader) duration(variable string, usual, least, most time.Duration) time.Duration {
	text := r.Get(variable)
	if text == "" {
		return usual
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < least || d > most {
		r.wrong(variable, fmt.Sprintf("a duration from %gs to %gs, such as %s", least.Seconds(), most.Seconds(), usual))
		return usual
	}
	return d
}

// fromTo is the use of a number of anything.
const fromTo = "a number from %v to %v"

// number reads a number; use is a format of the least and the most.
func number[T int | float64](r *reader, variable string, usual, least, most T, use string) T {
	text := r.Get(variable)
	if text == "" {
		return usual
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v >= float64(least) && v <= float64(most)) || float64(T(v)) != v {
		r.wrong(variable, fmt.Sprintf(use, least, most))
		return usual
	}
	return T(v)
}

// onOff reads a setting that is off unless it is on.
func (r *reader) onOff(variable string) (on bool) {
	switch r.Get(variable) {
	case "on":
		return true
	case "", "off":
	default:
		r.wrong(variable, "on or off")
	}
	return false
}

// pairingField checks RELAY_PAIRING_FIELD, which gets into what a model reads.
func pairingField(text string) (string, error) {
	if len(text) > 80 || strings.ContainsFunc(text, unicode.IsControl) {
		return "", errors.New("is no name of a field: at most 80 characters in one line")
	}
	return text, nil
}

// pictures reads RELAY_PICTURES.
func (r *reader) pictures() int {
	switch r.Get("RELAY_PICTURES") {
	case "show":
		return math.MaxInt
	case "path":
		return -1
	}
	return 1000 * number(r, "RELAY_PICTURES", 0, 1, 1_000_000, "show, path, or the kilobytes of the largest picture that an answer may have, from %v to %v")
}

// newGuard makes the guard of uploads: it refuses the relay's own secrets, and keys of
// the user that RELAY_UPLOAD_ALLOW does not list.
func newGuard(s Settings, checkpointDir string) (*transfer.Guard, error) {
	own, err := pairing.DefaultDir()
	if err != nil {
		return nil, err
	}
	g := &transfer.Guard{Never: []string{own, checkpointDir}}
	for _, name := range []string{"vms", "history", "transfers"} { // the history has the code and output of all runtimes
		if dir := ownDir(name); dir != "" {
			g.Never = append(g.Never, dir)
		}
	}
	for _, setting := range []string{"COLAB_SECRET_FILE", "NGROK_AUTHTOKEN_FILE"} {
		if file, err := filename.Typed(s.Get(setting)); err == nil && file != "" {
			g.Secrets = append(g.Secrets, file)
		}
	}
	g.Permit, err = pathList(s, "RELAY_UPLOAD_ALLOW")
	return g, err
}

// folder returns the folder that a setting names, or name below base, and creates it.
func folder(s Settings, setting string, base func() (string, error), name string) (string, error) {
	path, err := filename.Typed(s.Get(setting))
	if path == "" && err == nil {
		path, err = under(base, name)
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

// LogValue implements slog.LogValuer. It contains no secret.
func (c Config) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("save_dir", c.SaveDir), slog.String("checkpoint_dir", c.CheckpointDir),
		slog.Duration("hold", c.Hold), slog.Int("text_limit", c.TextLimit), slog.Duration("keep_every", c.Keep.Every), slog.Float64("keep_percent", c.Keep.Percent),
		slog.Int64("keep_bytes", c.Keep.MaxBytes), slog.Int64("keep_tunnel_bytes", c.Keep.TunnelBytes), slog.Int64("history_bytes", c.HistoryBytes), slog.Int("wrong_settings", len(c.Problems)),
	)
}

// Settings reads one setting at a time: a flag if it is given, else the environment. An
// empty value counts as unset.
type Settings struct {
	Getenv func(string) string
	flags  map[string]*string // by the name of the environment variable
}

// Setting describes a setting.
type Setting struct {
	Variable string // of the environment
	Flag     string // without dashes; empty if it has none
	Usage    string
}

// All lists the settings. Secrets have no flag, because other users of a computer can see
// a program's arguments.
var All = []Setting{
	{"COLAB_URL", "url", "use the executor at this `URL` instead of a paired one"},
	{"COLAB_SECRET", "", "the executor's secret, needed with COLAB_URL"},
	{"COLAB_SECRET_FILE", "secret-file", "read the executor's secret from this `FILE` instead"},
	{"COLAB_PAIRING", "", "the pairing string that the executor printed, instead of COLAB_URL and COLAB_SECRET"},
	{"RELAY_PAIRING_FIELD", "", "name of the field for COLAB_PAIRING in the settings of an MCP host's extension; for computers without the command colab-relay"},
	{"NGROK_AUTHTOKEN", "", "authtoken of your ngrok account, for the tunnels of executors that the relay starts"},
	{"NGROK_AUTHTOKEN_FILE", "", "read the authtoken from this file instead, which only you may read"},
	{"NGROK_DOMAIN", "", "static domain of your ngrok account, for those tunnels"},
	{"COLAB_RELAY_RELEASE_URL", "", "folder with the release's files, from which VMs fetch the executor (default: this relay's own release)"},
	{"LOCAL_SAVE_DIR", "save-dir", "save downloads, pictures and long outputs in this `FOLDER` (default ~/colab_results)"},
	{"CHECKPOINT_DIR", "checkpoint-dir", "keep checkpoints and kernel states in this `FOLDER`"},
	{"RELAY_HOLD", "hold", "let a tool call wait for at most this `TIME`, 1s to 230s (default 45s)"},
	{"RELAY_LONG_WAIT", "", "longest wait_seconds of get_execution in Claude Code, which works on meanwhile and tells the model when the answer comes, 1s to 24h (default 10m)"},
	{"RELAY_STRUCTURED", "", "set to on to add JSON to every answer, for programs; most hosts then show the model the JSON instead of the text (default off)"},
	{"RELAY_TOOLSETS", "toolsets", "serve these `SETS` of tools: " + toolsets.Names("or", "all") + ", separated by commas (default core, and notebook where notebooks are)"},
	{"RELAY_NOTEBOOK_DIRS", "", "folders outside your home folder in which tools may use notebooks, separated as in PATH"},
	{"RELAY_DOWNLOAD_DIRS", "", "folders beside LOCAL_SAVE_DIR in which tools may save downloads, separated as in PATH (default the host's project folder)"},
	{"RELAY_PAGE_PORT", "page-port", "let Colab's page connect to this `PORT` of this computer, 1024 to 65535; an SSH forward needs one (default a free port)"},
	{"RELAY_TEXT_LIMIT", "", "characters of a run's text in one answer, 1000 to 40000 (default 6000)"},
	{"RELAY_PICTURES", "", "show, path for the files' names only, or the kilobytes of the largest picture in an answer (default show; path in google-adk and ai-sdk-mcp-client, which make text of pictures)"},
	{"RELAY_HISTORY", "", "megabytes of past runs to keep on this computer, or off (default 200)"},
	{"RELAY_KEEP_EVERY", "", "shortest time between two saves of a chunked run's variables (default 30s)"},
	{"RELAY_KEEP_PERCENT", "", "largest share of a chunked run's time that such saves take (default 5)"},
	{"RELAY_KEEP_MB", "", "largest such save in MB; 0 saves nothing (default 64)"},
	{"RELAY_KEEP_TUNNEL_MB", "", "largest sum of such saves in MB per run through a tunnel (default 100)"},
	{"RELAY_UPLOAD_ALLOW", "", "paths that may be uploaded although they look like keys, separated as in PATH"},
}

// AddFlags defines the flags of the settings with these variables, of all without any. A
// flag that several commands have sets the same setting.
func (s *Settings) AddFlags(fs *pflag.FlagSet, variables ...string) {
	if s.flags == nil {
		s.flags = map[string]*string{}
	}
	for _, each := range All {
		if each.Flag == "" || len(variables) > 0 && !slices.Contains(variables, each.Variable) {
			continue
		}
		if s.flags[each.Variable] == nil {
			s.flags[each.Variable] = new(string)
		}
		fs.StringVar(s.flags[each.Variable], each.Flag, "", each.Usage+"; env "+each.Variable)
	}
}

// Get returns the setting with that environment variable, empty when it is not set.
func (s Settings) Get(variable string) string {
	if v := s.flags[variable]; v != nil && *v != "" {
		return *v
	}
	return s.Getenv(variable)
}

// maxToken bounds an authtoken and the file that holds it, in bytes. Tokens have about 50.
const maxToken = 1024

var (
	tokenPattern  = lazy.Regexp(`^[A-Za-z0-9_-]+$`)
	domainPattern = lazy.Regexp(`^[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+$`)
)

// Ngrok returns the ngrok account whose tunnels the executors use that this relay starts, which
// opens no tunnel itself: the token is NGROK_AUTHTOKEN or the content of NGROK_AUTHTOKEN_FILE, and
// the domain NGROK_DOMAIN. Either may be empty. Errors name the setting and never contain the token.
func Ngrok(s Settings) (token, domain string, err error) {
	domain = strings.TrimSuffix(strings.TrimPrefix(s.Get("NGROK_DOMAIN"), "https://"), "/")
	if domain != "" && (len(domain) > 253 || !domainPattern().MatchString(domain)) {
		return "", "", fmt.Errorf("NGROK_DOMAIN is %q: use a name such as your-name.ngrok-free.app", domain)
	}
	variable := "NGROK_AUTHTOKEN"
	token = s.Get(variable)
	if path := s.Get("NGROK_AUTHTOKEN_FILE"); token == "" && path != "" {
		variable = "NGROK_AUTHTOKEN_FILE"
		if path, err = filename.Typed(path); err == nil {
			token, err = readPrivate(path, maxToken)
		}
		if err != nil {
			return "", "", fmt.Errorf("%s: %w", variable, err)
		}
	}
	token = strings.TrimSpace(token)
	if (token != "" || variable == "NGROK_AUTHTOKEN_FILE") && (len(token) > maxToken || !tokenPattern().MatchString(token)) {
		return "", "", fmt.Errorf("%s does not contain an ngrok authtoken: copy it from https://dashboard.ngrok.com/get-started/your-authtoken", variable)
	}
	return token, domain, nil
}

// readPrivate reads a regular file of at most limit bytes that only this user may read. A
// pipe could make the relay wait for ever.
func readPrivate(path string, limit int64) (string, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%q is not a regular file", path)
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0:
		return "", fmt.Errorf("other users of this computer may read %q (mode %#o): run chmod 600 on it", path, info.Mode().Perm())
	}
	text, err := bounded.ReadFile(path, limit)
	if errors.Is(err, bounded.ErrTooLong) {
		err = fmt.Errorf("%q is %w, so it is no authtoken", path, err)
	}
	return string(text), err
}

// downloadDirs returns the folders beside LOCAL_SAVE_DIR in which tools may save downloads:
// those of RELAY_DOWNLOAD_DIRS; if that is unset, the project in which the host started the
// relay.
func downloadDirs(s Settings) ([]string, error) {
	if s.Get("RELAY_DOWNLOAD_DIRS") != "" {
		return pathList(s, "RELAY_DOWNLOAD_DIRS")
	}
	working, err := os.Getwd()
	if err != nil {
		return nil, nil
	}
	home, err := os.UserHomeDir()
	if err != nil || !isProject(working, home) {
		return nil, nil
	}
	return []string{working}, nil
}

// programFolders are folders of a home folder in which programs keep their data. Some hosts
// start relays there.
var programFolders = []string{"AppData", "Library", "snap"}

// isProject reports whether a working folder is one that a person works in, rather than where
// a host that has no project starts relays: it is below the home folder, not hidden, and not
// among the data of programs. A home folder that is the root, as in some containers, has no
// projects.
func isProject(working, home string) bool {
	working, err := filepath.EvalSymlinks(working)
	if err != nil {
		return false
	}
	if home, err = filepath.EvalSymlinks(home); err != nil {
		return false
	}
	rel, err := filepath.Rel(home, working)
	if err != nil || home == filepath.Dir(home) || rel == "." || !filepath.IsLocal(rel) {
		return false
	}
	parts := strings.Split(rel, string(filepath.Separator))
	hidden := slices.ContainsFunc(parts, func(part string) bool { return strings.HasPrefix(part, ".") })
	return !hidden && !slices.Contains(programFolders, parts[0])
}

// Bounds of RELAY_HISTORY, in MB.
const (
	defaultHistoryMB = 200
	leastHistoryMB   = 1
	mostHistoryMB    = 1 << 20
)

// history returns the folder of the history and its bound in bytes. The folder is not created:
// the first run does that. If the history is off, the folder is empty.
func (r *reader) history() (dir string, bytes int64) {
	if r.Get("RELAY_HISTORY") == "off" {
		return "", 0
	}
	mb := number(r, "RELAY_HISTORY", defaultHistoryMB, leastHistoryMB, mostHistoryMB, "off, or a number of megabytes from %v to %v")
	return ownDir("history"), int64(mb) << 20
}

// Bounds of the settings for what the relay keeps of chunked runs. The relay does not
// hold such a file in memory, but the kernel writes it to the VM's disk: a state of more
// than 4 GB is for save_kernel_state, which the user asks for.
const (
	leastKeepEvery = time.Second
	mostKeepEvery  = 24 * time.Hour
	mostKeepMB     = 4096
	mostTunnelMB   = 1 << 20
)

// Bounds of the look for a notebook at the relay's start. A folder with more entries, or on
// a disk that does not answer, counts as one without notebooks.
const (
	lookTime    = 30 * time.Millisecond
	lookEntries = 2_000 // in all folders together
	lookDepth   = 2     // of folders below the first one
)

// Toolsets returns the toolsets that a relay serves that starts now: those of
// RELAY_TOOLSETS; if that is unset, core, and notebook if the working folder or one of
// RELAY_NOTEBOOK_DIRS holds a notebook. It takes at most 30 ms. With an error, the result is
// as if the setting were unset.
func Toolsets(s Settings) (served []toolsets.Toolset, err error) {
	if text := s.Get("RELAY_TOOLSETS"); text != "" {
		if served, err = toolsets.Parse(text); err == nil {
			return served, nil
		}
		err = fmt.Errorf("RELAY_TOOLSETS %w", err)
	}
	dirs, _ := pathList(s, "RELAY_NOTEBOOK_DIRS")                          // Load reports what is wrong
	if here, err := os.Getwd(); err == nil && filepath.Dir(here) != here { // hosts start relays in the root folder, too
		dirs = append([]string{here}, dirs...)
	}
	served = []toolsets.Toolset{toolsets.Core}
	if holdsNotebook(dirs) {
		served = append(served, toolsets.Notebook)
	}
	return served, err
}

// holdsNotebook looks for a notebook in folders and the folders below them, as far as the
// bounds allow.
func holdsNotebook(dirs []string) bool {
	ctx, done := context.WithTimeout(context.Background(), lookTime)
	defer done()
	found := make(chan bool, 1)
	go func() { // which a dead network drive may hold forever
		found <- look(ctx, dirs)
	}()
	select {
	case yes := <-found:
		return yes
	case <-ctx.Done():
		return false
	}
}

// look looks level by level, so that a notebook near the top is found in any tree. It follows no
// links, and leaves out hidden folders and those of packages.
func look(ctx context.Context, level []string) bool {
	left := lookEntries
	for range lookDepth + 1 {
		var below []string
		for _, dir := range level {
			f, err := os.Open(dir)
			if err != nil {
				continue
			}
			entries, _ := f.ReadDir(left)
			f.Close()
			for _, e := range entries {
				name := e.Name()
				switch {
				case strings.HasPrefix(name, "."), name == "node_modules":
				case e.IsDir():
					below = append(below, filepath.Join(dir, name))
				case e.Type().IsRegular() && strings.HasSuffix(name, ".ipynb"):
					return true
				}
			}
			if left -= len(entries); left <= 0 || ctx.Err() != nil {
				return false
			}
		}
		level = below
	}
	return false
}

// pathList returns the paths of a setting that is a list as PATH is.
func pathList(s Settings, setting string) (paths []string, err error) {
	for _, path := range filepath.SplitList(s.Get(setting)) {
		if path, err = filename.Typed(path); err != nil {
			return paths, fmt.Errorf("%s: %v", setting, err)
		}
		if !filepath.IsAbs(path) {
			return paths, fmt.Errorf("%s contains %q: use absolute paths or paths that begin with ~/, separated by %q", setting, path, filepath.ListSeparator)
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// Bounds of RELAY_PAGE_PORT. The ports below need the rights of an administrator.
const (
	leastPagePort = 1024
	mostPagePort  = 65535
)

// ownDir returns the folder of that name in the relay's data folder. A user without a home
// folder has none.
func ownDir(name string) string {
	data, err := program.DataDir()
	if err != nil {
		return ""
	}
	return filepath.Join(data, "colab-relay", name)
}
