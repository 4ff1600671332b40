package main

import "testing"

func TestWrap(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"aaa bbb ccc", "aaa bbb\nccc"},
		{"aaaaaaaaaaaa b", "aaaaaaaaaaaa b"}, // a word that is longer than a line
		{"  a  bb cc dd", "  a  bb\n     cc\n     dd"},
		{"ä ö ü é", "ä ö ü é"},
		{"", ""},
	} {
		if got := wrap(c.text, 8); got != c.want {
			t.Errorf("%q: %q, want %q", c.text, got, c.want)
		}
	}
}

func TestSpaced(t *testing.T) {
	if got := spaced("a\nb:\n  c\n  d\n\ne\nf"); got != "a\n\nb:\n  c\n  d\n\ne\n\nf" {
		t.Errorf("%q", got)
	}
}
