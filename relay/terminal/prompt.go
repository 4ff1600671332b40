package terminal

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

const (
	maxAnswer = 100 // bytes of an answer to Confirm
	// maxPieces bounds the lines of a paste that a terminal or a chat program broke.
	maxPieces = 100
)

// ErrInterrupted: the person interrupted the program instead of answering.
var ErrInterrupted = errors.New("interrupted")

// Confirm asks a yes-or-no question. It returns false if stdin is not a terminal, or ctx ends.
func Confirm(ctx context.Context, std Streams, question string) bool {
	if !Is(std.In) {
		return false
	}
	fmt.Fprintf(std.Err, "%s [y/N] ", question)
	answer, err := UntilInterrupted(ctx, func() (string, error) {
		line, _ := bufio.NewReader(io.LimitReader(std.In, maxAnswer)).ReadString('\n') // an error counts as no
		return line, nil
	})
	if err != nil {
		fmt.Fprintln(std.Err)
	}
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes"
}

// UntilInterrupted returns what read returns, or ErrInterrupted when ctx ends. read then still
// waits for a line; the program ends soon after.
func UntilInterrupted(ctx context.Context, read func() (string, error)) (string, error) {
	type answer struct {
		text string
		err  error
	}
	done := make(chan answer, 1)
	go func() {
		text, err := read()
		done <- answer{text, err}
	}()
	select {
	case got := <-done:
		return got.text, got.err
	case <-ctx.Done():
		return "", ErrInterrupted
	}
}

// ReadHidden asks for a secret on the terminal std.In without showing what is typed. It
// reads lines until complete accepts what they make together, or until an empty line: a
// piece of a broken paste that is left unread would go to the shell.
func ReadHidden(ctx context.Context, std Streams, prompt string, complete func(text string) bool) (string, error) {
	fd := int(std.In.(*os.File).Fd())
	fmt.Fprint(std.Err, prompt)
	defer fmt.Fprintln(std.Err)
	return untilRestored(ctx, fd, func() (string, error) { return readPieces(fd, complete) })
}

// ReadPassword reads a line from the terminal in without showing what is typed. It drops what
// was typed before: a line that was meant for another prompt would be taken for the password,
// and the password, typed next, would answer a prompt that shows it. It returns ErrInterrupted
// when ctx ends.
func ReadPassword(ctx context.Context, in io.Reader) (string, error) {
	fd := int(in.(*os.File).Fd())
	flushInput(fd)
	return untilRestored(ctx, fd, func() (string, error) {
		line, err := term.ReadPassword(fd)
		return string(line), err
	})
}

// untilRestored is UntilInterrupted for a read that hides what is typed on the terminal fd.
func untilRestored(ctx context.Context, fd int, read func() (string, error)) (string, error) {
	before, err := term.GetState(fd)
	if err != nil {
		return "", err
	}
	text, err := UntilInterrupted(ctx, read)
	if errors.Is(err, ErrInterrupted) {
		_ = term.Restore(fd, before) // otherwise the shell would not show what is typed
	}
	return text, err
}

func readPieces(fd int, complete func(text string) bool) (string, error) {
	text := ""
	for range maxPieces {
		line, err := term.ReadPassword(fd)
		text += string(line)
		if err != nil && !errors.Is(err, io.EOF) {
			return "", err
		}
		if err != nil || len(line) == 0 || complete(text) {
			break
		}
	}
	return text, nil
}
