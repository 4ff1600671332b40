package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"colabrelay/shared/auth"
)

const (
	// maxPairingText bounds what is read from stdin.
	maxPairingText = 64 << 10
	// maxPairingLines bounds the pieces of a paste that a terminal or a chat program broke.
	maxPairingLines = 100
)

// readPairing reads what a person pastes, or what another program writes to stdin.
func readPairing(ctx context.Context, std streams) (string, error) {
	if file, ok := std.in.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		return askPairing(ctx, file, std.err)
	}
	text, err := io.ReadAll(io.LimitReader(std.in, maxPairingText))
	if err != nil {
		return "", fmt.Errorf("reading the pairing string: %v", err)
	}
	return string(text), nil
}

// askPairing reads from a terminal without showing it. It goes on until the pieces of a
// broken paste are whole: a rest that was not read would go to the shell.
func askPairing(ctx context.Context, terminal *os.File, say io.Writer) (string, error) {
	fd := int(terminal.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return "", fmt.Errorf("reading the pairing string: %v", err)
	}
	fmt.Fprint(say, "Paste the pairing string (it is not shown) and press Enter: ")
	defer fmt.Fprintln(say)
	type read struct {
		text string
		err  error
	}
	done := make(chan read, 1)
	go func() { // after an interrupt it waits for a line until the program ends, which is at once
		text, err := readUntilWhole(fd)
		done <- read{text, err}
	}()
	select {
	case got := <-done:
		return got.text, got.err
	case <-ctx.Done():
		_ = term.Restore(fd, before) // or the shell would show nothing either
		return "", errors.New("interrupted; nothing was paired")
	}
}

func readUntilWhole(fd int) (string, error) {
	var text strings.Builder
	for range maxPairingLines {
		line, err := term.ReadPassword(fd)
		text.Write(line)
		_, broken := auth.ParsePairing(text.String())
		if err != nil && !errors.Is(err, io.EOF) {
			return "", fmt.Errorf("reading the pairing string: %v", err)
		}
		if broken == nil || err != nil || len(line) == 0 || strings.Contains(text.String(), "://") {
			return text.String(), nil
		}
	}
	return text.String(), nil
}
