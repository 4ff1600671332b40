// Package setup has the commands that set this computer up and check it: pair and init, install,
// the paired runtimes, status and doctor, the ways to start an executor, and what the program says
// about itself. It must not edit a host's configuration, log in to a machine or check a VM in
// detail itself: relay/hostconfig, relay/sshhost and relay/doctor do.
//
// Start reading at PairCommand, and at connect in status.go for what pair and status ask a VM.
package setup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	bootstrap "colabrelay/colab-bootstrap"
	"colabrelay/relay/cli"
	"colabrelay/relay/config"
	"colabrelay/relay/pairing"
	"colabrelay/relay/plain"
	"colabrelay/relay/terminal"
	"colabrelay/shared/auth"
)

// maxPairingText bounds what is read from stdin, in bytes.
const maxPairingText = 64 << 10

// PairCommand returns `colab-relay pair`.
func PairCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	o := pairOptions{name: pairing.DefaultName}
	cmd := &cobra.Command{
		Use:   "pair [STRING | URL]",
		Short: "Pair this computer with a VM: paste what its executor printed",
		Long: "Pair this computer with the executor that printed the pairing STRING (on Colab: its cell). Without an argument, the string is read from stdin; a terminal does not show it. As an argument it would stay in the shell's history.\n" +
			"Give a URL (https://…) instead if the executor has the secret that `colab-relay init` made: then its address is enough.\n" +
			"If the name is already paired with another executor, that pairing is replaced only once the new executor answers.",
		Example: "  colab-relay pair                                  # then paste the pairing string\n" +
			"  colab-relay pair https://my-name.ngrok-free.app   # after `colab-relay init`\n" +
			"  colab-relay pair --name gpu-lab\n" +
			"  colab-relay pair --json < pairing.txt             # for programs",
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.colours = terminal.ColoursFor(std.Out, set.Getenv)
			return o.pair(cmd.Context(), args, std)
		},
	}
	cmd.Flags().StringVar(&o.name, "name", o.name, "`NAME` of the runtime")
	cli.AddJSONFlag(cmd, &o.asJSON)
	return cmd
}

// pairOptions are the flags of `colab-relay pair`.
type pairOptions struct {
	name    string
	asJSON  bool
	colours terminal.Colours
}

// pairedRuntime is the JSON of pair: whether the pairing was saved, and what answers there.
type pairedRuntime struct {
	Runtime  string `json:"runtime"`
	Saved    bool   `json:"saved"`
	Replaces string `json:"replaces,omitempty"` // the address that the name was paired with before
	connection
}

func (o pairOptions) pair(ctx context.Context, args []string, std terminal.Streams) error {
	if err := checkArguments(args); err != nil {
		return err
	}
	text := strings.Join(args, " ") // a terminal may break a paste into several arguments
	if text == "" || text == "-" {
		var err error
		if text, err = readPairing(ctx, std); err != nil {
			return err
		}
	}
	store, err := pairing.OpenDefault()
	if err != nil {
		return err
	}
	p, err := pairingOf(strings.TrimSpace(text), o.name, store)
	if err != nil {
		return err
	}
	r := pairing.Runtime{Name: o.name, URL: strings.TrimRight(p.URL, "/"), Secret: p.Secret}
	old, err := store.Get(o.name)
	replacing := err == nil && replaces(r, old)
	if visible := plainHTTP(r.URL); visible != "" {
		fmt.Fprintf(std.Err, "note: %s\n", visible)
	}
	var answer connection
	if replacing {
		answer = connect(ctx, r, nil)
	}
	if answer.err != nil {
		if err := o.print(pairedRuntime{Runtime: r.Name, connection: answer}, "", std); err != nil {
			return err
		}
		kept := "is still paired with " + old.URL
		if old.URL == "" {
			kept = "keeps the secret that `colab-relay init` made"
		}
		return cli.Reported(fmt.Errorf("no executor with this secret answers at %s, so %q %s; run the same command again once the new executor runs, or keep both with --name ANOTHER", r.URL, r.Name, kept), cli.ExitCode(answer.err))
	}
	paired, err := save(store, r, std)
	if err != nil {
		return err
	}
	if !replacing {
		if !o.asJSON {
			fmt.Fprintln(std.Out, paired) // before an executor that does not answer delays the rest
			paired = ""
		}
		answer = connect(ctx, r, nil)
	}
	done := pairedRuntime{Runtime: r.Name, Saved: true, connection: answer}
	if old.URL != r.URL {
		done.Replaces = old.URL
	}
	return o.print(done, paired, std)
}

// print prints what became of a pairing, after a line that says so if there is one.
func (o pairOptions) print(done pairedRuntime, line string, std terminal.Streams) error {
	if o.asJSON {
		return cli.PrintJSON(std.Out, done)
	}
	if line != "" {
		fmt.Fprintln(std.Out, line)
	}
	done.connection.print(std.Out, o.colours)
	if done.err != nil && done.Saved {
		fmt.Fprintln(std.Out, "The pairing was saved. Run `colab-relay status` to check it again.")
	}
	return nil
}

// replaces reports whether saving r would lose something: an address in use, or a secret
// that may exist nowhere else. Then r's executor must answer first.
func replaces(r, old pairing.Runtime) bool {
	return !old.Secret.Equal(r.Secret) || old.URL != "" && old.URL != r.URL
}

// plainHTTP returns what the network sees of the traffic with an address without TLS; it
// is empty for https and for this computer's own addresses. Relay and executor encrypt
// what they send; see docs/security.md.
func plainHTTP(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" || pairing.OnLoopback(address) {
		return ""
	}
	return "this address has no TLS. The relay and the executor encrypt code, output, names and files themselves, so nobody in between can read or change them; but the network sees that this computer talks to " +
		u.Hostname() + ", when, how much, and which kind of request. Use an https:// address if the executor has one."
}

// save stores a runtime. It returns a line that says so, and what the runtime replaced.
func save(store *pairing.Store, r pairing.Runtime, std terminal.Streams) (paired string, err error) {
	before, err := store.Put(r)
	if before.Damage != nil {
		fmt.Fprintln(std.Err, plain.Line(before.Damage.Error()))
	}
	if err != nil {
		return "", err
	}
	paired = fmt.Sprintf("Paired %q with %s", r.Name, r.URL)
	if before.URL != "" {
		paired += fmt.Sprintf(" (replaces %s)", before.URL)
	}
	return paired, nil
}

// pairingOf parses a pairing string or an address. An address is paired with the
// runtime's own secret, because an executor that was given that secret prints no pairing
// string.
func pairingOf(text, name string, store *pairing.Store) (auth.Pairing, error) {
	if text == "" {
		return auth.Pairing{}, cli.Usagef("no pairing string was given: paste the one that the executor prints, colab-relay:…")
	}
	if !strings.HasPrefix(text, "https://") && !strings.HasPrefix(text, "http://") {
		p, err := auth.ParsePairing(text)
		if err != nil && !strings.Contains(text, "colab-relay:") {
			return p, cli.Usagef("%w; an executor's address (https://…) also works", err)
		}
		return p, err
	}
	if err := auth.CheckURL(text); err != nil {
		return auth.Pairing{}, cli.Usagef("runtime %q: %v", name, err)
	}
	secret, err := store.SecretOf(name)
	if errors.Is(err, pairing.ErrNoSecret) {
		return auth.Pairing{}, fmt.Errorf("%q has no secret yet, so an address is not enough: either run `colab-relay init --name %s` and give the secret to the executor, or run `colab-relay pair --name %s` and paste the pairing string that the executor prints", name, name, name)
	}
	return auth.Pairing{URL: text, Secret: secret}, err
}

// checkArguments refuses words after a pairing string, because joined to it they would
// make it look damaged. If a terminal broke a paste into pieces, no piece is a valid
// string.
func checkArguments(args []string) error {
	for i, word := range args[:max(len(args)-1, 0)] {
		if _, err := auth.ParsePairing(word); err == nil {
			return cli.Usagef("unexpected %q after the pairing string: give only the string, and a name with --name", strings.Join(args[i+1:], " "))
		}
	}
	return nil
}

// readPairing reads a pairing string that a person pastes, or that another program
// writes to stdin.
func readPairing(ctx context.Context, std terminal.Streams) (string, error) {
	if !terminal.Is(std.In) {
		text, err := io.ReadAll(io.LimitReader(std.In, maxPairingText))
		if err != nil {
			return "", fmt.Errorf("read the pairing string: %v", err)
		}
		return string(text), nil
	}
	text, err := terminal.ReadHidden(ctx, std, "Paste the pairing string (it is not shown) and press Enter: ", func(text string) bool {
		_, err := auth.ParsePairing(text)
		return err == nil || strings.Contains(text, "://")
	})
	switch {
	case errors.Is(err, terminal.ErrInterrupted):
		return "", fmt.Errorf("%w; nothing was paired", err)
	case err != nil:
		return "", fmt.Errorf("read the pairing string: %v", err)
	}
	return text, nil
}

// UnpairCommand returns `colab-relay unpair`.
func UnpairCommand(std terminal.Streams) *cobra.Command {
	return &cobra.Command{
		Use:     "unpair NAME",
		Short:   "Remove a paired runtime",
		Long:    "Remove a paired runtime and its secret from this computer. Nothing changes on the VM.",
		Example: "  colab-relay unpair gpu-lab",
		Args:    cli.Arguments(1, 1),
		RunE: func(_ *cobra.Command, args []string) error {
			store, err := pairing.OpenDefault()
			if err != nil {
				return err
			}
			if err := store.Remove(args[0]); err != nil {
				return err
			}
			fmt.Fprintf(std.Out, "Removed %q. A running relay stops using it with its next call.\n", args[0])
			return nil
		},
		ValidArgsFunction: cli.FirstArgument(cli.CompleteRuntimes),
	}
}

// secretVariable is the executor's environment variable, and the first part of the
// secret's name in Colab.
const secretVariable = "EXECUTOR_SECRET"

// domainVariable is the same for the domain.
const domainVariable = "NGROK_DOMAIN"

// initOptions are the flags of `colab-relay init`.
type initOptions struct {
	name, domain string
	rotate       bool
	asJSON       bool
}

// InitCommand returns `colab-relay init`.
func InitCommand(std terminal.Streams) *cobra.Command {
	o := initOptions{name: pairing.DefaultName}
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make a secret for a runtime, and show where to put it",
		Long: "Make a secret for a runtime, and show what to put into Colab's Secrets, where the executor reads it at each start. Each runtime has its own secret. If you run the command again, it shows the same secret.\n" +
			"With --domain, a static domain of your ngrok account, the runtime is also paired, and you never have to paste anything.",
		Example: "  colab-relay init\n  colab-relay init --domain my-name.ngrok-free.app\n  colab-relay init --name gpu-lab\n  colab-relay init --json | jq -r .secret",
		Args:    cli.Arguments(0, 0),
		RunE:    func(*cobra.Command, []string) error { return o.run(std) },
	}
	cmd.Flags().StringVar(&o.domain, "domain", "", "the static `DOMAIN` of your ngrok account (https://dashboard.ngrok.com/domains)")
	cmd.Flags().StringVar(&o.name, "name", o.name, "`NAME` of the runtime")
	cmd.Flags().BoolVar(&o.rotate, "rotate", false, "replace the runtime's secret with a new one")
	cli.AddJSONFlag(cmd, &o.asJSON)
	return cmd
}

func (o initOptions) run(std terminal.Streams) error {
	if o.name == "" {
		return cli.Usagef("--name is empty: give a name or omit the flag")
	}
	host, err := domainOf(o.domain)
	if err != nil {
		return err
	}
	store, err := pairing.OpenDefault()
	if err != nil {
		return err
	}
	if err := o.checkSecretName(store); err != nil {
		return err
	}
	r, origin, before, err := store.Own(o.name, o.rotate)
	if before.Damage != nil {
		fmt.Fprintln(std.Err, plain.Line(before.Damage.Error()))
	}
	if err != nil {
		return err
	}
	paired := fmt.Sprintf("%q is paired with %s", r.Name, r.URL)
	if host != "" {
		r.URL = "https://" + host
		if paired, err = save(store, r, std); err != nil {
			return err
		}
	}
	if o.asJSON {
		own := ownSecret{
			Runtime: r.Name, ColabURL: r.URL, SecretName: bootstrap.SecretName(secretVariable, r.Name), Secret: r.Secret.Reveal(), Origin: origins[origin].name,
			DomainName: bootstrap.SecretName(domainVariable, r.Name), Domain: ngrokDomain(r, host), File: store.Path(),
		}
		return cli.PrintJSON(std.Out, own)
	}
	fmt.Fprintf(std.Out, origins[origin].text+" This computer keeps it in %s.\n\n", o.name, store.Path())
	printSecrets(std.Out, r, host)
	if origin == pairing.Replaced {
		fmt.Fprintf(std.Out, "An executor that is running still uses the old secret and refuses this computer: replace %s where you stored it, then start the executor again.\n", bootstrap.SecretName(secretVariable, o.name))
	}
	if r.URL != "" {
		fmt.Fprintf(std.Out, "%s. Once the executor is running, `colab-relay doctor` checks the connection.\n", paired)
	} else {
		o.printWaysToPair(std.Out)
	}
	return nil
}

// ownSecret is the JSON of init: what the text says. Its secret is for the place where the
// executor reads it.
type ownSecret struct {
	Runtime    string `json:"runtime"`
	ColabURL   string `json:"colab_url"` // empty before it is known
	SecretName string `json:"secret_name"`
	Secret     string `json:"secret"`
	Origin     string `json:"origin"` // made, kept or replaced
	DomainName string `json:"domain_name"`
	Domain     string `json:"domain"` // the static domain; empty without one
	File       string `json:"file"`   // in which this computer keeps the secret
}

// checkSecretName refuses a name whose secret would have the same name in Colab as that
// of another runtime.
func (o initOptions) checkSecretName(store *pairing.Store) error {
	all, err := store.List()
	if err != nil {
		return nil // Own reports or repairs it
	}
	secret := bootstrap.SecretName(secretVariable, o.name)
	for _, other := range all {
		if other.Name != o.name && bootstrap.SecretName(secretVariable, other.Name) == secret {
			return cli.Usagef("--name %s: Colab would store its secret under %s, which runtime %q already uses; choose another name", o.name, secret, other.Name)
		}
	}
	return nil
}

// origins say where a secret is from: in JSON, and as formats of the runtime's name.
var origins = map[pairing.Origin]struct{ name, text string }{
	pairing.Kept:     {"kept", "This is the secret of %q."},
	pairing.Made:     {"made", "A new secret was made for %q."},
	pairing.Replaced: {"replaced", "The secret of %q was replaced with a new one."},
}

// printSecrets prints what to store where. It prints the secret, which a person has to
// copy.
func printSecrets(out io.Writer, r pairing.Runtime, host string) {
	host = cmp.Or(ngrokDomain(r, host), "(only if you have one) a static domain from https://dashboard.ngrok.com/domains")
	fmt.Fprint(out, "In Colab, click the key icon on the left (Secrets), add these secrets and turn on \"Notebook access\" for each.\nOn Kaggle, add them under Add-ons > Secrets:\n\n")
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "  %s\t%s\n", bootstrap.SecretName(secretVariable, r.Name), r.Secret.Reveal())
	fmt.Fprintf(table, "  NGROK_AUTHTOKEN\tyour token from https://dashboard.ngrok.com/get-started/your-authtoken\n")
	fmt.Fprintf(table, "  %s\t%s\n", bootstrap.SecretName(domainVariable, r.Name), host)
	table.Flush()
	fmt.Fprintln(out)
	if r.Name != pairing.DefaultName {
		fmt.Fprintf(out, "In the cell's RUNTIME field, enter: %s\n", r.Name)
	}
	fmt.Fprintf(out, "On any other machine, set the environment variables %s to the secret shown above and NGROK_AUTHTOKEN to your token, and pass the domain to the executor with --domain.\n\n", secretVariable)
}

// ngrokDomain returns the static domain: host if a person gave it, or else that of the
// runtime's address.
func ngrokDomain(r pairing.Runtime, host string) string {
	if known, err := domainOf(r.URL); host == "" && err == nil && strings.Contains(known, ".ngrok") {
		return known
	}
	return host
}

// printWaysToPair says how to pair a runtime whose address is not known yet.
func (o initOptions) printWaysToPair(out io.Writer) {
	name := ""
	if o.name != pairing.DefaultName {
		name = " --name " + o.name
	}
	fmt.Fprintf(out, "With a static domain, run `colab-relay init%s --domain YOUR-NAME.ngrok-free.app` now; then you never have to paste anything.\n"+
		"Without one, the URL changes with each start: run `colab-relay pair%s URL` with the URL that the executor prints.\n", name, name)
}

// domainOf returns the host of a domain, which a person may give as a name or as a URL.
func domainOf(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.Port() != "" || u.User != nil ||
		strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" || !strings.Contains(u.Hostname(), ".") {
		return "", cli.Usagef("--domain %q: use a name such as your-name.ngrok-free.app", strings.TrimPrefix(text, "https://"))
	}
	return u.Hostname(), nil
}
