package config

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode"

	"colabrelay/relay/chunked"
	"colabrelay/relay/pairing"
	"colabrelay/relay/render"
	"colabrelay/relay/toolsets"
	"colabrelay/relay/transfer"
	"colabrelay/shared/filename"
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
