package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"colabrelay/relay/client"
	"colabrelay/relay/hint"
	"colabrelay/relay/pairing"
	"colabrelay/relay/plain"
	"colabrelay/shared/auth"
)

// checkTime bounds how long a person waits to hear whether an executor answers.
const checkTime = 10 * time.Second

func pairCommand(set *settings, std streams) *cobra.Command {
	name := pairing.DefaultName
	cmd := &cobra.Command{
		Use:   "pair [STRING | URL]",
		Short: "Remember the executor whose cell printed a pairing string, or that has URL",
		Long: "Remember the executor whose cell printed a pairing string. Without an argument the string is read from stdin, without showing it where that is a terminal: as an argument it would stay in the shell's history.\n" +
			"URL alone (https://…) is the address of an executor that has the secret of `relay init`.\n" +
			"A runtime that is paired already keeps its executor until the new one has answered.",
		RunE: func(cmd *cobra.Command, args []string) error {
			return pair(cmd.Context(), name, args, std)
		},
	}
	cmd.Flags().StringVar(&name, "name", name, "name of the runtime; its old pairing is replaced once the new executor answers")
	return cmd
}

func pair(ctx context.Context, name string, args []string, std streams) error {
	if err := onePairing(args); err != nil {
		return err
	}
	text := strings.Join(args, " ") // a paste may be broken into several arguments
	if text == "" || text == "-" {
		var err error
		if text, err = readPairing(ctx, std); err != nil {
			return err
		}
	}
	store, err := openPairings()
	if err != nil {
		return err
	}
	p, err := pairingOf(strings.TrimSpace(text), name, store)
	if err != nil {
		return err
	}
	r := pairing.Runtime{Name: name, URL: strings.TrimRight(p.URL, "/"), Secret: p.Secret}
	if old, err := store.Get(name); err == nil && replaces(r, old) {
		return replace(ctx, store, r, old, std)
	}
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

// replaces reports that storing r would lose something: an address in use, or a secret
// that may be nowhere else.
func replaces(r, old pairing.Runtime) bool {
	return !old.Secret.Equal(r.Secret) || old.URL != "" && old.URL != r.URL
}

// replace stores r in the place of old once r's executor has answered, signed.
func replace(ctx context.Context, store *pairing.Store, r, old pairing.Runtime, std streams) error {
	if !tell(ctx, r, std.out) {
		kept := "stays paired with " + old.URL
		if old.URL == "" {
			kept = "keeps the secret that `relay init` made"
		}
		return fmt.Errorf("no executor with this secret answers at %s, so %q %s; run the same command again when the new executor runs, or keep both with --name ANOTHER", r.URL, r.Name, kept)
	}
	paired, err := remember(store, r, std)
	if err != nil {
		return err
	}
	fmt.Fprintln(std.out, paired)
	return nil
}

// remember stores a runtime and gives the line that says so, with what it replaced.
func remember(store *pairing.Store, r pairing.Runtime, std streams) (paired string, err error) {
	before, err := store.Put(r)
	if before.Damage != nil {
		fmt.Fprintln(std.err, plain.Line(fmt.Sprint(before.Damage)))
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

// pairingOf reads a pairing string. An address alone goes with the runtime's own secret:
// an executor that was given it prints no pairing string.
func pairingOf(text, name string, store *pairing.Store) (auth.Pairing, error) {
	if !strings.HasPrefix(text, "https://") && !strings.HasPrefix(text, "http://") {
		p, err := auth.ParsePairing(text)
		if err != nil && !strings.Contains(text, "colab-relay:") {
			return p, fmt.Errorf("%w; the address of an executor, https://…, is taken too", err)
		}
		return p, err
	}
	if err := auth.CheckURL(text); err != nil {
		return auth.Pairing{}, fmt.Errorf("runtime %q: %v", name, err)
	}
	secret, err := store.SecretOf(name)
	if errors.Is(err, pairing.ErrNoSecret) {
		return auth.Pairing{}, fmt.Errorf("%q has no secret that goes with an address: make one with `relay init --name %s` and give it to the executor; else run `relay pair --name %s` and paste the pairing string that the executor prints", name, name, name)
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
	// Signed, it proves that the secrets are the same; and strangers who use up the
	// limit on unsigned requests do not keep it from being answered.
	health, err := c.SignedHealth(ctx)
	if err != nil {
		return failed(out, err)
	}
	kernel, err := c.Kernel(ctx)
	if err != nil {
		return failed(out, err)
	}
	fmt.Fprintf(out, "  connected: executor %s, up %.0f min, %.1f GB of memory available, kernel %s (Python %s)\n",
		health.Version, health.UptimeMinutes, health.MemoryAvailableGB, kernel.Status, kernel.Python)
	return true
}

func failed(out io.Writer, err error) bool {
	fmt.Fprintf(out, "  not connected: %s\n", plain.Line(err.Error()))
	if step := hint.Person(err); step != "" {
		fmt.Fprintf(out, "  next step: %s\n", plain.Line(step))
	}
	return false
}
