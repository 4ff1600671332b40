package colabcli

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"colabrelay/relay/plain"
	"colabrelay/relay/vm"
)

// noCredentials begins what the program prints without application default credentials.
const noCredentials = "No valid default credentials found"

// texts say what the program's output means. The first row with a text in it counts. All
// texts stand in the program's source, version 0.7.5.
var texts = []struct {
	text  string
	class error
	say   string // "" if the output says it
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
var requestPattern = regexp.MustCompile(`ColabRequestError: Failed to issue request [A-Z]+ \S+: ([A-Za-z ]+)`)

// reasons are those reason phrases, for the command that gets them.
var reasons = []struct {
	command command
	phrase  string
	class   error
}{
	{create, "Service Unavailable", vm.ErrNoneFree},
	{create, "Bad Request", vm.ErrNotEligible}, // also for --high-mem, of which the program says nothing
	{create, "Precondition Failed", vm.ErrTooMany},
}

// refusal returns the error of a call that ended with another exit code than 0, or with a
// text that means an error.
func refusal(c command, res result) error {
	output := strings.Join(strings.Fields(res.stdout+"\n"+res.stderr), " ") // lines may be folded
	for _, row := range texts {
		if strings.Contains(output, row.text) {
			return fmt.Errorf("%w: %s", row.class, row.say)
		}
	}
	if m := requestPattern.FindStringSubmatch(output); m != nil {
		for _, row := range reasons {
			if row.command.name == c.name && strings.HasPrefix(m[1], row.phrase) {
				return fmt.Errorf("%w: Google answered %q to `colab %s`", row.class, row.phrase, c.name)
			}
		}
	}
	return fmt.Errorf("`colab %s` ended with code %d and printed: %s", c.name, res.code, lastLines(res))
}

// failed returns the error of a command that uses a VM. What the program says of a VM that
// does not answer proves nothing, so a VM counts as gone only if Google does not list it.
func (b *Backend) failed(ctx context.Context, id string, c command, res result) error {
	refused := refusal(c, res)
	if noLogin(refused) {
		return refused
	}
	r, found, err := b.find(ctx, id)
	switch {
	case err != nil:
		return fmt.Errorf("%w; whether VM %q still runs is unknown: %w", refused, id, err)
	case !found:
		return fmt.Errorf("%w: %q", vm.ErrGone, id)
	case r.name == unnamed:
		return errUnnamed(r.row)
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

func errTooLarge(remotePath string, size int) error {
	return fmt.Errorf("upload %q: %d bytes are more than the limit of %d", remotePath, size, vm.MaxUpload)
}

// namePattern matches names of VMs that can be an argument of the program.
var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// usable returns an error for an id that the program cannot have as a session's name, or that
// it could take for an option.
func usable(id string) error {
	if !namePattern.MatchString(id) {
		return fmt.Errorf("%w: the relay passes no name like %q to Google's command line", vm.ErrUnknown, clip(plain.Line(id)))
	}
	return nil
}

// Bounds of what an error shows of the program's output.
const (
	maxLines     = 3
	maxLineBytes = 300
)

// urlQuery matches the query of a URL, which may have the token of a VM in it. Python's HTTP
// errors have whole URLs in them.
var (
	urlQuery  = regexp.MustCompile(`\?[^\s'"]*`)
	tokenText = regexp.MustCompile(`(?i)(bearer\s+|(?:token|authorization|secret|password|code)['"]?\s*[:=]\s*['"]?(?:bearer\s+)?)[^\s'"]+`)
)

// lastLines returns the end of the program's output as one line without tokens.
func lastLines(res result) string {
	output := res.stderr
	if strings.TrimSpace(output) == "" {
		output = res.stdout
	}
	var lines []string
	for line := range strings.Lines(output[max(0, len(output)-maxStderr):]) {
		line = tokenText.ReplaceAllString(urlQuery.ReplaceAllString(line, "?…"), "${1}…")
		if line = strings.TrimSpace(plain.Line(line)); line != "" {
			lines = append(lines, clip(line))
		}
	}
	if len(lines) == 0 {
		return "nothing"
	}
	return strings.Join(lines[max(0, len(lines)-maxLines):], " | ")
}

// clip shortens a line to maxLineBytes.
func clip(line string) string {
	if len(line) > maxLineBytes {
		return strings.ToValidUTF8(line[:maxLineBytes], "") + "…"
	}
	return line
}
