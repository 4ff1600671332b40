package setup

import (
	"cmp"
	"fmt"
	"io"
	"net/url"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	bootstrap "colabrelay/colab-bootstrap"
	"colabrelay/relay/cli"
	"colabrelay/relay/pairing"
	"colabrelay/relay/plain"
	"colabrelay/relay/terminal"
)

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
			Runtime: r.Name, ColabURL: r.URL, SecretName: bootstrap.SecretName(secretVariable, r.Name), Secret: r.Secret.Reveal(), Origin: originNames[origin],
			DomainName: bootstrap.SecretName(domainVariable, r.Name), Domain: ngrokDomain(r, host), File: store.Path(),
		}
		return cli.PrintJSON(std.Out, own)
	}
	fmt.Fprintf(std.Out, origins[origin]+" This computer keeps it in %s.\n\n", o.name, store.Path())
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

// originNames are the origins in JSON.
var originNames = map[pairing.Origin]string{pairing.Kept: "kept", pairing.Made: "made", pairing.Replaced: "replaced"}

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

// origins say where a secret is from, as formats of the runtime's name.
var origins = map[pairing.Origin]string{
	pairing.Kept:     "This is the secret of %q.",
	pairing.Made:     "A new secret was made for %q.",
	pairing.Replaced: "The secret of %q was replaced with a new one.",
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
