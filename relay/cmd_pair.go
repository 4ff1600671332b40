package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"colabrelay/relay/config"
	"colabrelay/relay/pairing"
	"colabrelay/relay/plain"
	"colabrelay/relay/terminal"
	"colabrelay/shared/auth"
)

// maxPairingText bounds what is read from stdin, in bytes.
const maxPairingText = 64 << 10

func pairCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	name := pairing.DefaultName
	cmd := &cobra.Command{
		Use:   "pair [STRING | URL]",
		Short: "Pair this computer with a VM: paste what its cell printed",
		Long: "Pair this computer with the executor whose cell printed the pairing STRING. Without an argument, the string is read from stdin; a terminal does not show it. As an argument it would stay in the shell's history.\n" +
			"Give a URL (https://…) instead if the executor has the secret that `colab-relay init` made: then its address is enough.\n" +
			"If the name is already paired with another executor, that pairing is replaced only once the new executor answers.",
		Example: "  colab-relay pair                                  # then paste the pairing string\n" +
			"  colab-relay pair https://my-name.ngrok-free.app   # after `colab-relay init`\n" +
			"  colab-relay pair --name gpu-lab",
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return pair(cmd.Context(), name, args, std, terminal.ColoursFor(std.Out, set.Getenv))
		},
	}
	cmd.Flags().StringVar(&name, "name", name, "`NAME` of the runtime")
	return cmd
}

func pair(ctx context.Context, name string, args []string, std terminal.Streams, colours terminal.Colours) error {
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
	p, err := pairingOf(strings.TrimSpace(text), name, store)
	if err != nil {
		return err
	}
	r := pairing.Runtime{Name: name, URL: strings.TrimRight(p.URL, "/"), Secret: p.Secret}
	old, err := store.Get(name)
	replacing := err == nil && replaces(r, old)
	if visible := plainHTTP(r.URL); visible != "" {
		fmt.Fprintf(std.Err, "note: %s\n", visible)
	}
	var answer connection
	if replacing {
		answer = connect(ctx, r, nil)
	}
	if answer.err != nil {
		answer.print(std.Out, colours)
		kept := "is still paired with " + old.URL
		if old.URL == "" {
			kept = "keeps the secret that `colab-relay init` made"
		}
		return reportedError{fmt.Errorf("no executor with this secret answers at %s, so %q %s; run the same command again once the new executor runs, or keep both with --name ANOTHER", r.URL, r.Name, kept), exitCode(answer.err)}
	}
	paired, err := save(store, r, std)
	if err != nil {
		return err
	}
	fmt.Fprintln(std.Out, paired)
	if !replacing {
		answer = connect(ctx, r, nil)
	}
	answer.print(std.Out, colours)
	if answer.err != nil {
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
	if err != nil || u.Scheme != "http" || u.Hostname() == "localhost" {
		return ""
	}
	if ip, err := netip.ParseAddr(u.Hostname()); err == nil && ip.IsLoopback() {
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
		return auth.Pairing{}, usagef("no pairing string was given: paste the one that the executor prints, colab-relay:…")
	}
	if !strings.HasPrefix(text, "https://") && !strings.HasPrefix(text, "http://") {
		p, err := auth.ParsePairing(text)
		if err != nil && !strings.Contains(text, "colab-relay:") {
			return p, usagef("%w; an executor's address (https://…) also works", err)
		}
		return p, err
	}
	if err := auth.CheckURL(text); err != nil {
		return auth.Pairing{}, usagef("runtime %q: %v", name, err)
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
			return usagef("unexpected %q after the pairing string: give only the string, and a name with --name", strings.Join(args[i+1:], " "))
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
