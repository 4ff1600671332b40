package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"colabrelay/relay/client"
	"colabrelay/relay/pairing"
	"colabrelay/shared/auth"
)

// checkTime bounds how long a person waits to hear whether an executor answers.
const checkTime = 10 * time.Second

// maxPairingText bounds what is read from stdin.
const maxPairingText = 64 << 10

func pairCommand(set *settings, std streams) *cobra.Command {
	name := pairing.DefaultName
	cmd := &cobra.Command{
		Use:   "pair [STRING | URL]",
		Short: "Remember the executor whose cell printed STRING, or that has URL (read from stdin when left out)",
		Long: "Remember the executor whose cell printed STRING, read from stdin when left out.\n" +
			"URL alone (https://…) is the address of an executor that has the secret of `relay init`.",
		RunE: func(cmd *cobra.Command, args []string) error {
			return pair(cmd.Context(), name, args, std)
		},
	}
	cmd.Flags().StringVar(&name, "name", name, "name of the pairing; an old one of that name is replaced")
	return cmd
}

func pair(ctx context.Context, name string, args []string, std streams) error {
	if err := onePairing(args); err != nil {
		return err
	}
	text := strings.Join(args, " ") // a paste may be broken into several arguments
	if text == "" || text == "-" {
		fmt.Fprintln(std.err, "Paste the pairing string and end with Ctrl-D:")
		b, err := io.ReadAll(io.LimitReader(std.in, maxPairingText))
		if err != nil {
			return fmt.Errorf("reading the pairing string: %v", err)
		}
		text = string(b)
	}
	store, err := openPairings()
	if err != nil {
		return err
	}
	p, err := pairingOf(strings.TrimSpace(text), store)
	if err != nil {
		return err
	}
	r := pairing.Runtime{Name: name, URL: p.URL, Secret: p.Secret}
	paired, err := remember(store, r, std)
	if err != nil {
		return err
	}
	fmt.Fprintln(std.out, paired)
	if !tell(ctx, r, std.out) {
		fmt.Fprintln(std.out, "The pairing is kept. `relay status` checks again.")
	}
	return nil
}

// remember stores a runtime and gives the line that says so, with what it replaced.
func remember(store *pairing.Store, r pairing.Runtime, std streams) (paired string, err error) {
	before, err := store.Put(r)
	if before.Damage != nil {
		fmt.Fprintln(std.err, before.Damage)
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

// pairingOf reads a pairing string. An address alone goes with the laptop's own
// secret: an executor that was given it prints no pairing string.
func pairingOf(text string, store *pairing.Store) (auth.Pairing, error) {
	if !strings.HasPrefix(text, "https://") && !strings.HasPrefix(text, "http://") {
		p, err := auth.ParsePairing(text)
		if err != nil && !strings.Contains(text, "colab-relay:") {
			return p, fmt.Errorf("%w; the address of an executor, https://…, is taken too", err)
		}
		return p, err
	}
	secret, err := store.KeptSecret()
	if errors.Is(err, fs.ErrNotExist) {
		return auth.Pairing{}, errors.New("an address alone needs a secret of your own, which `relay init` makes; else paste the `relay pair colab-relay:…` line that the executor prints")
	}
	return auth.Pairing{URL: text, Secret: secret}, err
}

// onePairing refuses words after a pairing string, which joined to it would only look
// like a damaged one. A paste that a terminal broke in pieces has no whole one.
func onePairing(args []string) error {
	for i, word := range args[:max(len(args)-1, 0)] {
		if _, err := auth.ParsePairing(word); err == nil {
			return fmt.Errorf("%q after the pairing string means nothing: give the string alone, and a name with --name", strings.Join(args[i+1:], " "))
		}
	}
	return nil
}

// tell prints what answers at a runtime's address and whether it is ours.
func tell(ctx context.Context, r pairing.Runtime, out io.Writer) bool {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	c, err := client.New(client.Config{BaseURL: r.URL, Secret: r.Secret})
	if err != nil {
		return failed(out, err)
	}
	defer c.Close()
	health, err := c.Health(ctx)
	if err != nil {
		return failed(out, err)
	}
	kernel, err := c.Kernel(ctx) // signed: proves that the secrets are the same
	if err != nil {
		return failed(out, err)
	}
	fmt.Fprintf(out, "  connected: executor %s, up %.0f min, %.1f GB of memory available, kernel %s (Python %s)\n",
		health.Version, health.UptimeMinutes, health.MemoryAvailableGB, kernel.Status, kernel.Python)
	return true
}

func failed(out io.Writer, err error) bool {
	fmt.Fprintf(out, "  not connected: %v\n", err)
	if step := nextStep(err); step != "" {
		fmt.Fprintf(out, "  next step: %s\n", step)
	}
	return false
}
