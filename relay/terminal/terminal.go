// Package terminal is what a person sees and types while a relay command runs: questions,
// the progress of a transfer, and outages of the connection.
//
// It filters everything that came from a VM before it reaches a terminal. It must not
// decide what a command does. Start reading at Streams.
package terminal

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/charmbracelet/x/ansi"
	"golang.org/x/term"

	"colabrelay/relay/plain"
)

// Streams are the standard streams of a program.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// Is reports whether a stream is a terminal.
func Is(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// fallbackWidth is that of a stream which is no terminal.
const fallbackWidth = 100

// Width returns the number of characters in a line of a stream.
func Width(stream any) int {
	if f, ok := stream.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return fallbackWidth
}

// Colours marks parts of a text for a person. Its zero value marks nothing.
type Colours struct{ on bool }

// ColoursFor returns the marks for a stream: none unless it is a terminal that shows
// colours and the person has not set NO_COLOR (https://no-color.org).
func ColoursFor(stream any, getenv func(string) string) Colours {
	kind := getenv("TERM")
	known := kind != "" || runtime.GOOS == "windows" && getenv("WT_SESSION") != ""
	return Colours{Is(stream) && known && kind != "dumb" && getenv("NO_COLOR") == ""}
}

// On reports whether the stream shows colours.
func (c Colours) On() bool { return c.on }

// Good marks what works.
func (c Colours) Good(s string) string { return c.mark("32", s) }

// Warning marks what works with a drawback.
func (c Colours) Warning(s string) string { return c.mark("33", s) }

// Bad marks what does not work.
func (c Colours) Bad(s string) string { return c.mark("31", s) }

// Dim marks what is seldom read, such as an id.
func (c Colours) Dim(s string) string { return c.mark("2", s) }

func (c Colours) mark(code, s string) string {
	if !c.on || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

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

// QuietTime is how long an outage lasts before it is shown to a person: the relay
// retries, and most outages end sooner.
const QuietTime = 2 * time.Second

// Outage writes to a stream that the VM does not answer, once that has lasted longer
// than QuietTime, and later that it answers again.
type Outage struct {
	Out io.Writer

	mu       sync.Mutex
	since    time.Time // of the first failure in a row; zero after a success
	reported bool
}

// Attempt takes the outcome of an attempt to reach the VM; it fits client.Config.
func (o *Outage) Attempt(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case err == nil:
		if o.reported {
			fmt.Fprintln(o.Out, "colab-relay: the VM answers again")
		}
		o.since, o.reported = time.Time{}, false
	case o.since.IsZero():
		o.since = time.Now()
	case !o.reported && time.Since(o.since) > QuietTime:
		o.reported = true
		fmt.Fprintf(o.Out, "colab-relay: waiting for the VM; code that has started there keeps running: %s\n", plain.Line(err.Error()))
	}
}

// statusEvery is the shortest time between two changes of a Status.
const statusEvery = 100 * time.Millisecond

// Status is one line of a terminal that is written over. Elsewhere it writes nothing.
type Status struct {
	Out io.Writer

	mu    sync.Mutex
	drawn time.Time
	shown bool
}

// Show writes text in place of the line, unless the last one is too recent.
func (s *Status) Show(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !Is(s.Out) || time.Since(s.drawn) < statusEvery {
		return
	}
	s.drawn, s.shown = time.Now(), true
	fmt.Fprintf(s.Out, "\r\x1b[K%s", ansi.Truncate(plain.Line(text), Width(s.Out)-1, "…"))
}

// Clear removes the line, so that something else can be written there.
func (s *Status) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shown {
		s.shown, s.drawn = false, time.Time{}
		fmt.Fprint(s.Out, "\r\x1b[K")
	}
}

// How often Watch writes.
const (
	redrawEvery = 200 * time.Millisecond
	lineEvery   = 10 * time.Second // in a log file, which keeps each line
)

// Watch writes what line returns, again and again, until stop is called: to a terminal in a Status,
// which stop removes, elsewhere a line now and then. Nothing is written once stop has returned.
func Watch(out io.Writer, line func() string) (stop func()) {
	every, status := lineEvery, &Status{Out: out}
	if Is(out) {
		every = redrawEvery
	}
	quit := make(chan struct{})
	var ended sync.WaitGroup
	ended.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if text := plain.Line(line()); Is(out) {
					status.Show(text)
				} else {
					fmt.Fprintln(out, text)
				}
			case <-quit:
				return
			}
		}
	})
	return func() {
		close(quit)
		ended.Wait()
		status.Clear()
	}
}
