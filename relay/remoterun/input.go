package remoterun

import (
	"context"
	"fmt"
	"io"
	"strings"

	"colabrelay/relay/terminal"
)

// readInput reads a line from the person; a terminal does not show a password. If ctx
// ends, the read is left running, because the program ends soon after.
func (p *printer) readInput(ctx context.Context) (string, error) {
	type line struct {
		text string
		err  error
	}
	got := make(chan line, 1)
	go func() {
		text, err := p.readLine()
		got <- line{text, err}
	}()
	select {
	case l := <-got:
		p.openLine = p.openLine && l.err != nil // the person's Enter ended the line
		return l.text, l.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

func (p *printer) readLine() (string, error) {
	if p.password && terminal.Is(p.std.In) {
		text, err := terminal.ReadPassword(p.std.In)
		fmt.Fprintln(p.std.Err)
		return text, err
	}
	text, err := p.stdin.ReadString('\n')
	switch {
	case err == io.EOF && text == "":
		err = ErrNoInput
	case err == io.EOF:
		err = nil
	}
	return strings.TrimRight(text, "\r\n"), err
}
