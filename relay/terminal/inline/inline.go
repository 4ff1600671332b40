// Package inline shows pictures in terminals that can: by iTerm2's OSC 1337, or by kitty's
// graphics protocol.
//
// It decides how, and writes the sequences. It must not get bytes of a VM: a caller passes
// pictures that it has encoded itself. Start reading at Detect.
package inline

import (
	"encoding/base64"
	"fmt"
	"strings"
)

// Protocol is how a terminal shows pictures.
type Protocol int

// Protocols.
const (
	None Protocol = iota
	// ITerm is https://iterm2.com/documentation-images.html.
	ITerm
	// Kitty is https://sw.kovidgoyal.net/kitty/graphics-protocol/.
	Kitty
)

// Detect returns what the terminal understands, as far as the environment tells. Inside
// tmux, screen and zellij it is None: they pass such sequences on only if told so, and then
// draw over the picture.
func Detect(getenv func(string) string) Protocol {
	term := getenv("TERM")
	for _, inside := range []string{"TMUX", "STY", "ZELLIJ"} {
		if getenv(inside) != "" {
			return None
		}
	}
	if strings.HasPrefix(term, "screen") || strings.HasPrefix(term, "tmux") || term == "dumb" {
		return None
	}
	switch program := getenv("TERM_PROGRAM"); {
	case getenv("KITTY_WINDOW_ID") != "", term == "xterm-kitty", program == "ghostty", term == "xterm-ghostty":
		return Kitty
	// iTerm2 sets LC_TERMINAL too, which ssh passes on.
	case program == "iTerm.app", program == "WezTerm", getenv("LC_TERMINAL") == "iTerm2":
		return ITerm
	}
	return None
}

// chunk is how much base64 one of kitty's sequences may have.
const chunk = 4096

// Sequence returns what shows a PNG at the cursor, with a line break after it. It is empty
// for None.
func (p Protocol) Sequence(png []byte) string {
	data := base64.StdEncoding.EncodeToString(png)
	switch p {
	case ITerm:
		return fmt.Sprintf("\x1b]1337;File=inline=1;size=%d:%s\a\n", len(png), data)
	case Kitty:
		return kitty(data)
	}
	return ""
}

// kitty splits base64 into sequences: a=T shows a picture, f=100 is PNG, q=2 means that the
// terminal does not answer, and m=1 that more follows.
func kitty(data string) string {
	var b strings.Builder
	for keys := "a=T,f=100,q=2,"; ; keys = "" {
		n := min(chunk, len(data))
		more := 0
		if n < len(data) {
			more = 1
		}
		fmt.Fprintf(&b, "\x1b_G%sm=%d;%s\x1b\\", keys, more, data[:n])
		if data = data[n:]; data == "" {
			return b.String() + "\n"
		}
	}
}
