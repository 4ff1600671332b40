package audit

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/contract"
)

// hostile returns a record whose every text is s.
func hostile(s string) record {
	now := time.Now()
	return record{
		Event: eventRequest, KeyID: "0123456789abcdef", Source: Source{s, s, s}, Method: s, Path: s, Error: contract.Code("internal"),
		ExecutionID: s, SubmitID: s, KernelID: s, CodeSHA256: s, Code: cut(s, maxCode), Cause: s, Since: &now,
	}
}

// mustBeOneLine checks what every reader of the log relies on.
func mustBeOneLine(t *testing.T, line []byte) (r record) {
	t.Helper()
	if len(line) > maxLine || bytes.IndexByte(line, '\n') != len(line)-1 {
		t.Fatalf("%d bytes, of which the first newline is at %d", len(line), bytes.IndexByte(line, '\n'))
	}
	for _, b := range line[:len(line)-1] {
		if b < ' ' || b > '~' {
			t.Fatalf("byte %#x in %q", b, line)
		}
	}
	if !begins(line) {
		t.Fatalf("begins with %q", line[:20])
	}
	if err := json.Unmarshal(line, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

var hostileTexts = map[string]string{
	"newline":            "a\nb\r\n{\"event\":\"forged\"}\n",
	"terminal escapes":   "\x1b[2J\x1b]0;title\x07\x1b[31m",
	"C1 control":         "\u009b31m\u0085",
	"line separators":    "a\u2028b\u2029c",
	"NUL":                "a\x00b",
	"quotes":             `a"},{"b":"\`,
	"not UTF-8":          "a\xff\xc3(b\xed\xa0\x80",
	"beyond 16 bits":     "😀🏴\U000e0041",
	"a megabyte of NULs": strings.Repeat("\x00", 1<<20),
	"a megabyte of 😀":    strings.Repeat("😀", 1<<20),
}

func TestWhateverARecordHoldsIsOneBoundedLineOfASCII(t *testing.T) {
	for name, text := range hostileTexts {
		t.Run(name, func(t *testing.T) {
			r := mustBeOneLine(t, hostile(text).line())
			if want := string([]rune(cut(text, maxPath))); r.Path != want {
				t.Errorf("path %q, want %q", r.Path, want)
			}
			for what, got := range map[string]int{r.Method: maxMethod, r.Path: maxPath, r.Address: maxField, r.SubmitID: maxField, r.Cause: maxField, r.Code: maxCode} {
				if len(what) > 3*got { // an invalid byte is read back as three
					t.Errorf("a field of at most %d bytes has %d", got, len(what))
				}
			}
		})
	}
}

func TestFieldsAreKeptUpToTheirBounds(t *testing.T) {
	for bound, get := range map[int]func(record) string{
		maxMethod: func(r record) string { return r.Method },
		maxPath:   func(r record) string { return r.Path },
		maxField:  func(r record) string { return r.Address },
	} {
		for _, n := range []int{bound, bound + 1} {
			if kept := get(mustBeOneLine(t, hostile(strings.Repeat("x", n)).line())); len(kept) != bound {
				t.Errorf("of %d bytes %d are kept", n, len(kept))
			}
		}
	}
}

func FuzzLine(f *testing.F) {
	for _, text := range hostileTexts {
		f.Add(text[:min(len(text), 1<<10)])
	}
	f.Fuzz(func(t *testing.T, text string) { mustBeOneLine(t, hostile(text).line()) })
}
