// Package config reads the relay's settings and checks them.
//
// It reports every wrong setting together, and never logs a secret. Start reading at
// Settings and Load.
package config

import (
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
	var c Config
	problem := func(format string, args ...any) { c.Problems = append(c.Problems, fmt.Errorf(format, args...)) }
	var err error
	c.loadAnswers(s, problem)
	if text := s.Get("RELAY_TOOLSETS"); text != "" {
		if _, err = toolsets.Parse(text); err != nil {
			problem("RELAY_TOOLSETS %v", err)
		}
	}
	if c.NotebookDirs, err = pathList(s, "RELAY_NOTEBOOK_DIRS"); err != nil {
		problem("%v", err)
	}
	if c.PairingField, err = pairingField(s.Get("RELAY_PAIRING_FIELD")); err != nil {
		problem("RELAY_PAIRING_FIELD %v", err)
	}
	if c.DownloadDirs, err = downloadDirs(s); err != nil {
		problem("%v", err)
	}
	c.Keep = loadKeep(s, problem)
	if _, err = LoadNgrok(s); err != nil {
		problem("%v", err)
	}
	if c.HistoryDir, c.HistoryBytes, err = loadHistory(s); err != nil {
		problem("%v", err)
	}
	if c.PagePort, err = pagePort(s.Get("RELAY_PAGE_PORT")); err != nil {
		problem("RELAY_PAGE_PORT %v", err)
	}
	c.VMDir, c.TransferDir = ownDir("vms"), ownDir("transfers")
	if c.SaveDir, err = folder(s, "LOCAL_SAVE_DIR", os.UserHomeDir, "colab_results"); err != nil {
		problem("LOCAL_SAVE_DIR: %v", err)
	}
	if c.CheckpointDir, err = folder(s, "CHECKPOINT_DIR", os.UserCacheDir, filepath.Join("colab-relay", "checkpoints")); err != nil {
		problem("CHECKPOINT_DIR: %v", err)
	}
	if c.Pairings, err = pairing.OpenDefault(); err != nil {
		problem("%v", err)
	}
	if c.Guard, err = newGuard(s, c.CheckpointDir); err != nil {
		problem("%v", err)
	}
	if pairing.InEnvironment(s.Get) {
		if _, err := pairing.Resolve(pairing.EnvName, s.Get, c.Pairings); err != nil {
			problem("%v", err)
		}
	}
	return c
}

// loadAnswers reads what bounds and shapes the answers of tools.
func (c *Config) loadAnswers(s Settings, problem func(format string, args ...any)) {
	var err error
	if c.Hold, err = duration(s.Get("RELAY_HOLD"), defaultHold, leastHold, mostHold); err != nil {
		problem("RELAY_HOLD %v", err)
	}
	if c.LongWait, err = duration(s.Get("RELAY_LONG_WAIT"), defaultLongWait, leastHold, mostLongWait); err != nil {
		problem("RELAY_LONG_WAIT %v", err)
	}
	if c.Structured, err = onOff(s.Get("RELAY_STRUCTURED")); err != nil {
		problem("RELAY_STRUCTURED %v", err)
	}
	if c.TextLimit, err = textLimit(s.Get("RELAY_TEXT_LIMIT")); err != nil {
		problem("RELAY_TEXT_LIMIT %v", err)
	}
	if c.Pictures, err = pictures(s.Get("RELAY_PICTURES")); err != nil {
		problem("RELAY_PICTURES %v", err)
	}
}

// Err is nil when all settings are right, else an error that lists the wrong ones.
func (c Config) Err() error {
	if len(c.Problems) == 0 {
		return nil
	}
	return fmt.Errorf("wrong settings: %w", errors.Join(c.Problems...))
}

// duration parses a setting. If it is unset or wrong, it returns usual.
func duration(text string, usual, least, most time.Duration) (time.Duration, error) {
	if text == "" {
		return usual, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < least || d > most {
		return usual, fmt.Errorf("is %q: use a duration from %gs to %gs, such as %s", text, least.Seconds(), most.Seconds(), usual)
	}
	return d, nil
}

// onOff parses a setting that is off unless it is on.
func onOff(text string) (on bool, err error) {
	switch text {
	case "", "off":
		return false, nil
	case "on":
		return true, nil
	}
	return false, fmt.Errorf("is %q: use on or off", text)
}

// pairingField checks RELAY_PAIRING_FIELD, which gets into what a model reads.
func pairingField(text string) (string, error) {
	if len(text) > 80 || strings.ContainsFunc(text, unicode.IsControl) {
		return "", errors.New("is no name of a field: at most 80 characters in one line")
	}
	return text, nil
}

// textLimit parses RELAY_TEXT_LIMIT. If it is unset or wrong, it returns the default.
func textLimit(text string) (int, error) {
	if text == "" {
		return render.DefaultTextLimit, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < render.LeastTextLimit || n > render.MostTextLimit {
		return render.DefaultTextLimit, fmt.Errorf("is %q: use a number of characters from %d to %d, such as %d", text, render.LeastTextLimit, render.MostTextLimit, render.DefaultTextLimit)
	}
	return n, nil
}

// pictures parses RELAY_PICTURES.
func pictures(text string) (int, error) {
	switch text {
	case "":
		return 0, nil
	case "show":
		return math.MaxInt, nil
	case "path":
		return -1, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 1_000_000 {
		return 0, fmt.Errorf("is %q: use show, path, or the kilobytes of the largest picture that an answer may have, such as 100", text)
	}
	return n * 1000, nil
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
		if file, err := expandHome(s.Get(setting)); err == nil && file != "" {
			g.Secrets = append(g.Secrets, file)
		}
	}
	g.Permit, err = pathList(s, "RELAY_UPLOAD_ALLOW")
	return g, err
}

// folder returns the folder that a setting names, or name below base, and creates it.
func folder(s Settings, setting string, base func() (string, error), name string) (string, error) {
	path, err := expandHome(s.Get(setting))
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

// expandHome replaces ~ at the beginning of a path. MCP hosts pass environment values
// on without a shell that would do so.
func expandHome(path string) (string, error) {
	return filename.Typed(path)
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

// Ngrok is the ngrok account whose tunnels the executors use that this relay starts. The
// relay opens no tunnel itself.
type Ngrok struct {
	Token  Token  // empty: the VM looks for one of its own
	Domain string // static domain of the account, such as name.ngrok-free.app; may be empty
}

// Token is an ngrok authtoken. Printed by fmt, slog or encoding/json, it does not show
// itself.
type Token string

// Format prints String for every verb of fmt.
func (t Token) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(t.String())) }

// String says whether there is a token.
func (t Token) String() string {
	if t == "" {
		return "[no token]"
	}
	return "[token]"
}

// LogValue is String, for slog.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.String()) }

// MarshalText is String, for encoding/json and other encoders.
func (t Token) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// maxToken bounds an authtoken and the file that holds it, in bytes. Tokens have about 50.
const maxToken = 1024

var (
	tokenPattern  = lazy.Regexp(`^[A-Za-z0-9_-]+$`)
	domainPattern = lazy.Regexp(`^[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+$`)
)

// LoadNgrok reads NGROK_AUTHTOKEN, or the file that NGROK_AUTHTOKEN_FILE names, and
// NGROK_DOMAIN. Its errors name the setting and never contain the token.
func LoadNgrok(s Settings) (Ngrok, error) {
	token, err := ngrokToken(s)
	if err != nil {
		return Ngrok{}, err
	}
	domain := strings.TrimSuffix(strings.TrimPrefix(s.Get("NGROK_DOMAIN"), "https://"), "/")
	if domain != "" && (len(domain) > 253 || !domainPattern().MatchString(domain)) {
		return Ngrok{}, fmt.Errorf("NGROK_DOMAIN is %q: use a name such as your-name.ngrok-free.app", domain)
	}
	return Ngrok{Token: token, Domain: domain}, nil
}

func ngrokToken(s Settings) (Token, error) {
	variable, text := "NGROK_AUTHTOKEN", s.Get("NGROK_AUTHTOKEN")
	if path := s.Get("NGROK_AUTHTOKEN_FILE"); text == "" && path != "" {
		variable = "NGROK_AUTHTOKEN_FILE"
		path, err := expandHome(path)
		if err == nil {
			text, err = readPrivate(path, maxToken)
		}
		if err != nil {
			return "", fmt.Errorf("%s: %w", variable, err)
		}
	}
	text = strings.TrimSpace(text)
	if text == "" && variable == "NGROK_AUTHTOKEN" {
		return "", nil
	}
	if len(text) > maxToken || !tokenPattern().MatchString(text) {
		return "", fmt.Errorf("%s does not contain an ngrok authtoken: copy it from https://dashboard.ngrok.com/get-started/your-authtoken", variable)
	}
	return Token(text), nil
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
