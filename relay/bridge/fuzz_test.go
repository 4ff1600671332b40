package bridge

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	bootstrap "colabrelay/colab-bootstrap"
)

// FuzzOutputs reads any outputs that Colab's page shows for a cell, and the report in them. What
// an error shows of them is one short, plain line.
func FuzzOutputs(f *testing.F) {
	for _, seed := range []string{
		`[{"output_type":"stream","text":["colab-relay-enroll:","{}\n"]},{"output_type":"error","ename":"E\u001b","evalue":"v"}]`,
		`[{"output_type":"stream","text":"a\nb"},{"output_type":"display_data","text":5},null,{}]`, `{}`, `[[]]`, "",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, outputs []byte) {
		text, err := outputText(outputs)
		if err != nil || !json.Valid(outputs) && len(outputs) > 0 {
			if err == nil {
				t.Fatalf("%q gives %q", outputs, text)
			}
			return
		}
		if line := shown(text); utf8.RuneCountInString(line) > maxShownRunes || strings.ContainsFunc(line, unicode.IsControl) {
			t.Errorf("an error shows %q", line)
		}
		_, _ = bootstrap.ReadEnrollment("0123456789abcdef0123456789abcdef", text)
	})
}
