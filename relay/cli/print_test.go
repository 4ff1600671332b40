package cli

import (
	"bytes"
	"encoding/json"
	"testing"
)

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

func TestJSONContainsNoInvisibleCharacters(t *testing.T) {
	want := "a\x1b[31m\u009b2J \u202egpj.\U000e0041 日本 <é>\n\t\x7f"
	var out bytes.Buffer
	if err := PrintJSON(&out, []string{want}); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); text != "[\n  \"a\\u001b[31m\\u009b2J \\u202egpj.\\udb40\\udc41 日本 <é>\\n\\t\\u007f\"\n]\n" {
		t.Errorf("%q", text)
	}
	var got []string
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || got[0] != want {
		t.Errorf("%q, %v", got, err)
	}
}
