package main

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	bootstrap "colabrelay/colab-bootstrap"
	"colabrelay/relay/pairing"
)

// ownSecret is what `relay init` was asked for.
type ownSecret struct {
	name, domain string
	rotate       bool
}

func initCommand(std streams) *cobra.Command {
	own := ownSecret{name: pairing.DefaultName}
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make a secret for a runtime, and say where it goes",
		Long: "Make a secret for a runtime and print what to put into Colab's Secrets, so that its executor takes it at each start.\n" +
			"Each runtime has a secret of its own. With --domain, a static domain of your ngrok account, the runtime is paired at the same time, and nothing has to be pasted after that. Called again, the command prints the same secret.",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return own.initialise(std) },
	}
	cmd.Flags().StringVar(&own.domain, "domain", "", "a static domain of your ngrok account (https://dashboard.ngrok.com/domains)")
	cmd.Flags().StringVar(&own.name, "name", own.name, "name of the runtime")
	cmd.Flags().BoolVar(&own.rotate, "rotate", false, "replace the runtime's secret by a new one")
	return cmd
}

func (o ownSecret) initialise(std streams) error {
	host, err := domainOf(o.domain)
	if err != nil {
		return err
	}
	store, err := openPairings()
	if err != nil {
		return err
	}
	if err := o.clash(store); err != nil {
		return err
	}
	r, origin, before, err := store.Own(o.name, o.rotate)
	if before.Damage != nil {
		fmt.Fprintln(std.err, before.Damage)
	}
	if err != nil {
		return err
	}
	paired := ""
	if host != "" {
		r.URL = "https://" + host
		if paired, err = remember(store, r, std); err != nil {
			return err
		}
	}
	fmt.Fprintf(std.out, o.origin(origin)+"\n\n", o.name, store.Path())
	fmt.Fprint(std.out, whereTo(r, host))
	if o.rotate {
		fmt.Fprintf(std.out, "An executor that runs now still has the old secret and refuses this computer: replace %s where you kept it, then start the executor again.\n", bootstrap.SecretName(secretVariable, o.name))
	}
	fmt.Fprint(std.out, o.next(r, paired))
	return o.shares(store, r, std)
}

// clash refuses a name whose secrets would be called like those of another runtime.
func (o ownSecret) clash(store *pairing.Store) error {
	all, err := store.List()
	if err != nil {
		return nil // told by what changes the list
	}
	called := bootstrap.SecretName(secretVariable, o.name)
	for _, other := range all {
		if other.Name != o.name && bootstrap.SecretName(secretVariable, other.Name) == called {
			return fmt.Errorf("--name %s: its secret would be called %s, as that of %q is: choose another name", o.name, called, other.Name)
		}
	}
	return nil
}

func (o ownSecret) origin(origin pairing.Origin) string {
	switch {
	case o.rotate:
		return "The secret of %q was replaced by a new one, kept in %s."
	case origin == pairing.Made:
		return "A secret was made for %q and is kept in %s."
	case origin == pairing.Adopted:
		return "The secret that an earlier release made for all runtimes is now that of %q alone, kept in %s."
	}
	return "The secret of %q is the one kept in %s."
}

// next says what comes after the secrets are in their place.
func (o ownSecret) next(r pairing.Runtime, paired string) string {
	name := ""
	if o.name != pairing.DefaultName {
		name = " --name " + o.name
	}
	switch {
	case paired != "":
		return paired + ". When the executor runs, `relay doctor` says whether it can be reached.\n"
	case r.URL != "":
		return fmt.Sprintf("%q is paired with %s. When the executor runs, `relay doctor` says whether it can be reached.\n", r.Name, r.URL)
	}
	return fmt.Sprintf("Without a static domain the URL changes with each start: then run `relay pair%s URL` with the one the executor prints.\n"+
		"With one, run `relay init%s --domain YOUR-NAME.ngrok-free.app` now, and nothing has to be pasted after that.\n", name, name)
}

// shares warns of other runtimes with the same secret, as an earlier release gave it out.
func (o ownSecret) shares(store *pairing.Store, r pairing.Runtime, std streams) error {
	all, err := store.List()
	if err != nil {
		return err
	}
	for _, other := range all {
		if other.Name != r.Name && other.Secret.Equal(r.Secret) {
			fmt.Fprintf(std.err, "note: %q has the same secret, so a request captured on its way to one executor fits the other: give it one of its own with `relay init --name %s --rotate`\n", other.Name, other.Name)
		}
	}
	return nil
}

// secretVariable is the executor's variable, and the base of the secret's name on the page.
const secretVariable = "EXECUTOR_SECRET"

// whereTo says what goes where. It shows the secret: a person has to copy it.
func whereTo(r pairing.Runtime, host string) string {
	if host == "" {
		host = "a static domain from https://dashboard.ngrok.com/domains, where you have one"
	}
	rows := [][2]string{
		{bootstrap.SecretName(secretVariable, r.Name), r.Secret.Reveal()},
		{"NGROK_AUTHTOKEN", "your token from https://dashboard.ngrok.com/get-started/your-authtoken"},
		{bootstrap.SecretName("NGROK_DOMAIN", r.Name), host},
	}
	width := 0
	for _, row := range rows {
		width = max(width, len(row[0]))
	}
	var b strings.Builder
	b.WriteString("In Colab click the key on the left (Secrets), add these, and switch on \"Notebook access\" for each;\non Kaggle they go into Add-ons > Secrets:\n\n")
	for _, row := range rows {
		fmt.Fprintf(&b, "  %-*s  %s\n", width, row[0], row[1])
	}
	b.WriteString("\n")
	if r.Name != pairing.DefaultName {
		fmt.Fprintf(&b, "Then write %s into the cell's field RUNTIME.\n", r.Name)
	}
	fmt.Fprintf(&b, "On any other machine the first goes into the executor's environment as %s, the second as NGROK_AUTHTOKEN, and the domain into its flag --domain.\n\n", secretVariable)
	return b.String()
}

// domainOf is the host of what a person calls the domain: a name or a URL.
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
		return "", fmt.Errorf("--domain %q: want a name such as your-name.ngrok-free.app", strings.TrimPrefix(text, "https://"))
	}
	return u.Hostname(), nil
}
