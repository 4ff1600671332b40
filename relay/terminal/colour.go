package terminal

import "runtime"

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
