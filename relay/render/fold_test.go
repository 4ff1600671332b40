package render

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestFoldingShowsWhatATerminalShowsAtTheEnd(t *testing.T) {
	bar := ""
	for i := range 101 {
		bar += fmt.Sprintf("\r%3d%%|%-20s|", i, strings.Repeat("█", i/5))
	}
	nested := "outer 0\n"
	for i := range 30 {
		nested += fmt.Sprintf("\rinner %d\x1b[A\r", i) + fmt.Sprintf("outer %d\n", i)
	}
	for _, c := range []struct{ name, in, want string }{
		{"carriage return overwrites", "12345\rab", "ab345"},
		{"crlf is a line break", "a\r\nb\r\n", "a\nb\n"},
		{"backspace", "abc\b\bX", "aXc"},
		{"colours", "\x1b[1;31mred\x1b[0m plain", "red plain"},
		{"title ended by BEL", "\x1b]0;title\x07text", "text"},
		{"an OSC never ended stops at the line's end", "\x1b]0;never\nnext\n", "\nnext\n"},
		{"erase the line", "abcdef\x1b[2K\rxy", "xy"},
		{"tqdm", bar, "100%|████████████████████|"},
		{"padding of a shorter redraw is dropped", "loading...\rdone      \n", "done\n"},
		{"cursor up", "a\nb\n\x1b[2Ac\x1b[2B", "c\nb\n"},
		{"nested bars", nested, "outer 29\ninner 29"},
	} {
		if got := strings.TrimRight(Plain(c.in), "\x00"); got != c.want && strings.TrimRight(got, "\n") != strings.TrimRight(c.want, "\n") || strings.Count(got, "\n") < strings.Count(c.want, "\n") {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// FuzzFold checks that folding never fails, returns valid text and does not depend on how
// the output was split into events.
func FuzzFold(f *testing.F) {
	f.Add("a\rb\x1b[31mc\x1b[0m\x1b[3A\b\b\n\x1b]0;t\x07", uint64(1))
	f.Add(strings.Repeat("x\n", 40)+"\x1b[20A\x1b[2Jq", uint64(2))
	f.Add("\x1b[99999999999999C.\x1b[2147483647Dx\x1bP\x1b_", uint64(3))
	f.Fuzz(func(t *testing.T, s string, seed uint64) {
		if !utf8.ValidString(s) {
			return
		}
		whole := Plain(s)
		if !utf8.ValidString(whole) {
			t.Fatalf("not UTF-8: %q", whole)
		}
		var b strings.Builder
		folder := folder{emit: func(text string) { b.WriteString(text) }}
		r := rand.New(rand.NewPCG(seed, 0))
		for rest := []rune(s); len(rest) > 0; {
			n := 1 + r.IntN(len(rest))
			folder.write(string(rest[:n]))
			rest = rest[n:]
		}
		b.WriteString(folder.pending())
		if b.String() != whole {
			t.Fatalf("cut differently: %q and %q", b.String(), whole)
		}
	})
}
