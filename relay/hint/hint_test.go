package hint

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"colabrelay/relay/client"
	"colabrelay/relay/transfer"
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

type outcome contract.Status

func (o outcome) Error() string            { return string(o) }
func (o outcome) Outcome() contract.Status { return contract.Status(o) }

func TestPersonsHints(t *testing.T) {
	refused := &contract.Error{Code: contract.CodeNewInstance}
	for _, test := range []struct {
		err  error
		want string
	}{
		{transfer.ErrGuarded, "--force"},
		{fmt.Errorf("putting: %w: %w", transfer.ErrSomeFailed, refused), "already transferred"}, // not its cause
		{refused, "setup code"},
		{outcome(contract.StatusKernelRestarted), "in the new kernel"},
		{&client.Error{Hint: "try it"}, "try it"},
	} {
		if got := Person(test.err); !strings.Contains(got, test.want) {
			t.Errorf("%v: %q, want %q", test.err, got, test.want)
		}
	}
	for _, err := range []error{errors.New("other"), fs.ErrNotExist, outcome(contract.StatusInterrupted)} {
		if got := Person(err); got != "" {
			t.Errorf("%v: %q", err, got)
		}
	}
}
