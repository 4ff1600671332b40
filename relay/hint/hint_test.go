package hint

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"colabrelay/shared/contract"
)

// sentences reports whether a text is made of full sentences.
func sentences(text string) bool {
	first, _, _ := strings.Cut(text, " ")
	return text != "" && (strings.ToUpper(text[:1]) == text[:1] || strings.Contains(first, "_")) // a tool's name
}

func TestEveryRefusalHasBothHints(t *testing.T) {
	for _, code := range contract.Codes {
		h := ForRefusal(&contract.Error{Code: code, Hint: "the executor's own"})
		if h.Code != string(code) || !sentences(h.Model) || !sentences(h.Person) {
			t.Errorf("%s: %+v", code, h)
		}
	}
	if len(refusals) != len(contract.Codes) {
		t.Errorf("%d rows for %d codes", len(refusals), len(contract.Codes))
	}
	want := Hint{Code: CodeUnknown, Model: unknown.model, Person: unknown.person}
	if diff := cmp.Diff(want, ForRefusal(&contract.Error{Code: "of_a_later_release", Hint: "theirs"})); diff != "" {
		t.Error(diff)
	}
	if h := ForRefusal(&contract.Error{Code: "of_a_later_release"}); h.Model == "" {
		t.Error("a code without any hint has none")
	}
}
