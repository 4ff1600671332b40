package main

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"colabrelay/relay/pairing"
	"colabrelay/shared/auth"
)

func initCommand(std streams) *cobra.Command {
	name, domain := pairing.DefaultName, ""
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make a secret of your own once, and say where it goes",
		Long: "Make a secret of your own, once, and print what to put into Colab's Secrets, so that every executor takes it.\n" +
			"With --domain, your ngrok account's static domain, the runtime is paired at the same time: then nothing has to be pasted ever again. Called again, it prints the same secret.",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return initialise(name, domain, std) },
	}
	cmd.Flags().StringVar(&domain, "domain", "", "your ngrok account's static domain (https://dashboard.ngrok.com/domains)")
	cmd.Flags().StringVar(&name, "name", name, "name of the pairing that --domain makes")
	return cmd
}

func initialise(name, domain string, std streams) error {
	host, err := domainOf(domain)
	if err != nil {
		return err
	}
	store, err := openPairings()
	if err != nil {
		return err
	}
	secret, path, made, err := store.Secret()
	if err != nil {
		return err
	}
	paired := ""
	if host != "" {
		if paired, err = remember(store, pairing.Runtime{Name: name, URL: "https://" + host, Secret: secret}, std); err != nil {
			return err
		}
	}
	kept := "Your secret is the one kept in"
	if made {
		kept = "A secret was made and is kept in"
	}
	fmt.Fprintf(std.out, "%s %s.\n\n", kept, path)
	fmt.Fprint(std.out, whereTo(secret, host))
	if host != "" {
		fmt.Fprintf(std.out, "%s. When the executor runs, `relay doctor` says whether all fits.\n", paired)
		return nil
	}
	fmt.Fprintln(std.out, "Without a static domain the URL changes with each start: then run `relay pair URL` with the one the executor prints.\nWith one, run `relay init --domain YOUR-NAME.ngrok-free.app` now, and nothing has to be pasted ever again.")
	return nil
}

// whereTo says what goes where. It shows the secret: a person has to copy it.
func whereTo(secret auth.Secret, host string) string {
	var b strings.Builder
	b.WriteString("In Colab click the key on the left (Secrets), add these, and switch on \"Notebook access\" for each;\non Kaggle they go into Add-ons > Secrets, on any other machine into the executor's environment:\n\n")
	fmt.Fprintf(&b, "  %-16s %s\n", "EXECUTOR_SECRET", secret.Reveal())
	fmt.Fprintf(&b, "  %-16s %s\n", "NGROK_AUTHTOKEN", "your token from https://dashboard.ngrok.com/get-started/your-authtoken")
	if host == "" {
		host = "your static domain from https://dashboard.ngrok.com/domains, where you have one"
	}
	fmt.Fprintf(&b, "  %-16s %s\n\n", "NGROK_DOMAIN", host)
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
