// Package terminal is what a person sees and types while a relay command runs: questions,
// the progress of a transfer, and outages of the connection.
//
// It filters everything that came from a VM before it reaches a terminal. It must not
// decide what a command does. Start reading at Streams.
package terminal

import (
	"io"
	"os"

	"golang.org/x/term"
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
