package cli

import (
	"bytes"
	"encoding/json"
	"testing"
)

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
