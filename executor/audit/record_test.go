package audit

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/contract"
)

// maxLine is the length of the longest line: each byte of code may become six.
const maxLine = 6*(maxCode+maxPath+maxMethod+8*maxField) + 1024

// hostile returns a record whose every text is s.
func hostile(s string) record {
	now := time.Now()
	return record{
		Event: eventRequest, KeyID: "0123456789abcdef", Request: Request{Source: Source{s, s, s}, Method: s, Path: s, Error: contract.Code("internal"), ExecutionID: s},
		SubmitID: s, KernelID: s, CodeSHA256: s, Code: cut(s, maxCode), Cause: s, Since: &now,
	}
}

// mustBeOneLine checks what every reader of the log relies on.
func mustBeOneLine(t *testing.T, line []byte) {
	t.Helper()
	if len(line) > maxLine || bytes.IndexByte(line, '\n') != len(line)-1 {
		t.Fatalf("%d bytes, of which the first newline is at %d", len(line), bytes.IndexByte(line, '\n'))
	}
	for _, b := range line[:len(line)-1] {
		if b < ' ' || b > '~' {
			t.Fatalf("byte %#x in %q", b, line)
		}
	}
	if err := json.Unmarshal(line, new(record)); err != nil {
		t.Fatal(err)
	}
}

var hostileTexts = []string{
	"a\nb\r\n{\"event\":\"forged\"}\n",
	"\x1b[2J\x1b]0;title\x07\x1b[31m",
	"a\x00b",
	"a\xff\xc3(b\xed\xa0\x80",
	strings.Repeat("\x00", 1<<20),
}

func FuzzLine(f *testing.F) {
	for _, text := range hostileTexts {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) { mustBeOneLine(t, hostile(text).line()) })
}
