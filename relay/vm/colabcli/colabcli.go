// Package colabcli starts and uses Colab's VMs with Google's own command line, the program
// colab of the Python package google-colab-cli.
//
// It uses the program's documented commands new, sessions, upload, exec and stop, and no
// others. It does not talk to Google itself, must not read or change the program's own files,
// and gives it none of the relay's secrets. Start reading at Backend.
package colabcli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"colabrelay/relay/plain"
	"colabrelay/relay/vm"
	"colabrelay/shared/lazy"
)

// Config is what a Backend needs.
type Config struct {
	// Program is the path of colab. If it is empty, PATH and ~/.local/bin are searched at each
	// call: hosts often start the relay with a short PATH.
	Program string
	// Dir is the folder for what the relay remembers of the VMs that it asked for. It is
	// created with the first VM.
	Dir string
	// Environ is the environment from which the program gets the variables that it needs; nil
	// is this process's.
	Environ []string
	Log     *slog.Logger // nil for none
}

// Backend is a vm.Backend. Its methods are safe for concurrent use. They work on Linux and
// macOS; Google's program does not run on Windows.
type Backend struct {
	cfg     Config
	records records
}

var _ vm.Backend = (*Backend)(nil)

// New returns a Backend. It starts nothing and does not look for the program.
func New(cfg Config) *Backend {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Environ == nil {
		cfg.Environ = os.Environ()
	}
	return &Backend{cfg: cfg, records: newRecords(cfg.Dir, cfg.Log)}
}

// Name implements vm.Backend.
func (b *Backend) Name() string { return "cli" }

// Specs implements vm.Backend. Google's program cannot tell what the account may start.
func (b *Backend) Specs(context.Context) ([]vm.Spec, error) { return nil, nil }

// Time limits of calls. The program retries some requests itself.
const (
	listLimit   = time.Minute
	stopLimit   = 2 * time.Minute
	uploadLimit = 15 * time.Minute // 256 MiB at 3 Mbit/s
	// createLimit is longer than the program's own attempts: 4 of up to 2 minutes each, and
	// 70 seconds between them.
	createLimit = 12 * time.Minute
	// execMargin is what an exec may take besides the code: reaching or starting the kernel
	// takes up to four attempts of 10 seconds, and a busy kernel is waited for 10 seconds.
	execMargin = time.Minute
)

// Upload implements vm.Backend. The content is in a file that only this user can read while
// the program runs.
func (b *Backend) Upload(ctx context.Context, id, remotePath string, content []byte) error {
	if err := usable(id); err != nil {
		return err
	}
	if len(content) > vm.MaxUpload {
		return fmt.Errorf("upload %q: %d bytes are more than the limit of %d", remotePath, len(content), vm.MaxUpload)
	}
	dir, err := os.MkdirTemp("", "colab-relay-upload-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	local := filepath.Join(dir, "content")
	if err := os.WriteFile(local, content, 0o600); err != nil {
		return err
	}
	res, err := b.run(ctx, call{argv: []string{"upload", "-s", id, local, remotePath}, limit: uploadLimit})
	if err != nil {
		return err
	}
	if res.code != 0 {
		return b.failed(ctx, id, "upload", res)
	}
	return nil
}

// Touch implements vm.Backend: it runs a comment in the VM's kernel, because the program has
// no other command that keeps a VM alive.
func (b *Backend) Touch(ctx context.Context, id string) error {
	_, err := b.Exec(ctx, id, "# colab-relay keeps this VM alive while code runs on it", touchTime)
	return err
}

const touchTime = 20 * time.Second

// Login lets Google's program ask the person to log in: it runs `colab sessions` on the
// person's terminal, which shows Google's questions and then the VMs of the account. The
// program keeps the login in its own file. Login changes nothing if there is one already.
func (b *Backend) Login(ctx context.Context, in io.Reader, out, errs io.Writer) error {
	program, err := b.program()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program, "sessions")
	cmd.Env = environment(b.cfg.Environ)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, errs
	cmd.WaitDelay = pipeDelay
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return fmt.Errorf("log in with `colab sessions`: %w; what it printed is above", err)
	}
	if _, err := b.rows(ctx); err != nil {
		return fmt.Errorf("`colab sessions` ended without an error, but a second call did not list VMs: %w", err)
	}
	return nil
}

// noCredentials begins what the program prints without application default credentials.
const noCredentials = "No valid default credentials found"

// texts say what the program's output means. The first row with a text in it counts. All
// texts stand in the program's source, version 0.7.5.
var texts = []struct {
	text  string
	class error
	say   string
}{
	{"No such option", vm.ErrNotEnabled, "Google's command line is too old: update it with `uv tool upgrade google-colab-cli`"},
	{"No such command", vm.ErrNotEnabled, "the program `colab` is too old, or not Google's: install Google's with `uv tool install google-colab-cli`"},
	{"To authorize colab-cli, visit this URL", vm.ErrNotLoggedIn, logIn},
	{"Enter the authorization code", vm.ErrNotLoggedIn, logIn},
	{noCredentials, vm.ErrNotLoggedIn, logIn},
	{"Allocation refused (precondition failed)", vm.ErrTooMany, "it may also be a usage or capacity limit, Google's command line does not say which: stop a VM, wait, or try another accelerator"},
	{"Backend rejected accelerator", vm.ErrNotEligible, "Google's command line says that the account may lack quota or entitlement for it"},
}

const logIn = "run `colab-relay vm login --backend cli` in a terminal"

// requestPattern matches the program's error of an HTTP request to Google: its last part is
// the reason phrase of the status.
var requestPattern = lazy.Regexp(`ColabRequestError: Failed to issue request [A-Z]+ \S+: ([A-Za-z ]+)`)

// reasons are those reason phrases of `colab new`.
var reasons = map[string]error{
	"Service Unavailable": vm.ErrNoneFree,
	"Bad Request":         vm.ErrNotEligible, // also for --high-mem, of which the program says nothing
	"Precondition Failed": vm.ErrTooMany,
}

// refusal returns the error of a call that ended with another exit code than 0, or with a
// text that means an error.
func refusal(command string, res result) error {
	output := strings.Join(strings.Fields(res.stdout+"\n"+res.stderr), " ") // lines may be folded
	for _, row := range texts {
		if strings.Contains(output, row.text) {
			return fmt.Errorf("%w: %s", row.class, row.say)
		}
	}
	if m := requestPattern().FindStringSubmatch(output); m != nil && command == "new" {
		for phrase, class := range reasons {
			if strings.HasPrefix(m[1], phrase) {
				return fmt.Errorf("%w: Google answered %q to `colab new`", class, phrase)
			}
		}
	}
	return fmt.Errorf("`colab %s` ended with code %d and printed: %s", command, res.code, lastLines(res))
}

// failed returns the error of a command that uses a VM. What the program says of a VM that
// does not answer proves nothing, so a VM counts as gone only if Google does not list it.
func (b *Backend) failed(ctx context.Context, id, command string, res result) error {
	refused := refusal(command, res)
	if noLogin(refused) {
		return refused
	}
	r, err := b.find(ctx, id)
	switch {
	case err != nil:
		return fmt.Errorf("%w; whether VM %q still runs is unknown: %w", refused, id, err)
	case r == nil:
		return fmt.Errorf("%w: %q", vm.ErrGone, id)
	case r.name == unnamed:
		return errUnnamed(*r)
	}
	return refused
}

// noLogin reports whether the program could not have asked Google for anything.
func noLogin(err error) bool {
	return errors.Is(err, vm.ErrNotLoggedIn) || errors.Is(err, vm.ErrNotEnabled)
}

// errUnnamed is the error of a VM that the program cannot use.
func errUnnamed(r row) error {
	return fmt.Errorf("VM %q (%s) runs, but Google's command line has no name for it and can neither use nor stop it: stop it on Colab's page, https://colab.research.google.com, at Runtime, Manage sessions", plain.Line(r.endpoint), r.spec)
}

// namePattern matches names of VMs that can be an argument of the program.
var namePattern = lazy.Regexp(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// usable returns an error for an id that the program cannot have as a session's name, or that
// it could take for an option.
func usable(id string) error {
	if !namePattern().MatchString(id) {
		return fmt.Errorf("%w: the relay passes no name like %q to Google's command line", vm.ErrUnknown, plain.Clip(id, maxLineRunes))
	}
	return nil
}

// Bounds of what an error shows of the program's output.
const (
	maxLines     = 3
	maxLineRunes = 300
)

// urlQuery matches the query of a URL, which may have the token of a VM in it. Python's HTTP
// errors have whole URLs in them.
var (
	urlQuery  = lazy.Regexp(`\?[^\s'"]*`)
	tokenText = lazy.Regexp(`(?i)(bearer\s+|(?:token|authorization|secret|password|code)['"]?\s*[:=]\s*['"]?(?:bearer\s+)?)[^\s'"]+`)
)

// lastLines returns the end of the program's output as one line without tokens.
func lastLines(res result) string {
	output := res.stderr
	if strings.TrimSpace(output) == "" {
		output = res.stdout
	}
	var lines []string
	for line := range strings.Lines(output[max(0, len(output)-maxStderr):]) {
		line = tokenText().ReplaceAllString(urlQuery().ReplaceAllString(line, "?…"), "${1}…")
		if line = plain.Clip(strings.TrimSpace(line), maxLineRunes); line != "" {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		return "nothing"
	}
	return strings.Join(lines[max(0, len(lines)-maxLines):], " | ")
}
