package contract

import (
	"strings"
	"testing"
)

func TestNamesAreEscapedWithoutAnyTwoBecomingOne(t *testing.T) {
	for name, want := range map[string]string{
		"":                 "",
		"\x1b\n ":          "\x1b\n ",
		`\x1b\x0a\x20`:     `\x5cx1b\x5cx0a\x5cx20`,
		"ünï→🎉\n\"'":       "ünï→🎉\n\"'",
		`a\xyz`:            `a\xyz`,
		`\x41\x2f\x00\x2e`: `\x41\x2f\x00\x2e`,
		"\xff":             `\xff`,
		"bad\xff\xfename":  `bad\xff\xfename`,
		`\xff`:             `\x5cxff`,
		`\x5cxff`:          `\x5cx5cxff`,
		"\\x\xff":          `\x\xff`,
		`\\xff`:            `\\x5cxff`,
		"dir\xfe/\\xfe":    `dir\xfe/\x5cxfe`,
	} {
		if got := EscapeName(name); got != want {
			t.Errorf("EscapeName(%q) = %q, want %q", name, got, want)
		}
		if got := UnescapeName(want); got != name {
			t.Errorf("UnescapeName(%q) = %q, want %q", want, got, name)
		}
	}
}

// What is escaped besides is unescaped too.
func TestMoreCharactersMayBeEscaped(t *testing.T) {
	name := " \x01\x1f\x7f\u200b“\xff\\x20"
	for at := range name {
		e := EscapeNameAlso(name, func(i int) bool { return i == at && (i == 0 || i < strings.Index(name, `\x`)) })
		if UnescapeName(e) != name {
			t.Errorf("%q is escaped as %q, which means %q", name, e, UnescapeName(e))
		}
	}
	all := EscapeNameAlso(name, func(i int) bool { return i < strings.Index(name, `\x`) })
	if want := `\x20\x01\x1f\x7f\xe2\x80\x8b\xe2\x80\x9c\xff\x5cx20`; all != want {
		t.Errorf("%q is escaped as %q, want %q", name, all, want)
	}
}
