package hint

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
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

// statuses are those of a run that ended badly.
var statuses = []string{
	string(contract.StatusFailed), string(contract.StatusTimedOut), string(contract.StatusInterrupted),
	string(contract.StatusCancelled), string(contract.StatusKernelDied), string(contract.StatusKernelRestarted), string(contract.StatusLost),
}

func TestEveryBadOutcomeHasAHint(t *testing.T) {
	for _, s := range append(statuses, "of_a_later_release") {
		h := ForOutcome(contract.Status(s))
		known := s != string(contract.StatusInterrupted)
		if s == "of_a_later_release" {
			s = CodeUnknown
		}
		if h.Code != s || !sentences(h.Model) || known != sentences(h.Person) {
			t.Errorf("%s: %+v", s, h)
		}
	}
}

func TestEveryKindOfFailureKeepsItsHint(t *testing.T) {
	for _, kind := range client.Kinds {
		if got := Person(fmt.Errorf("connecting: %w", &client.Error{Kind: kind, Hint: "try " + string(kind)})); got != "try "+string(kind) {
			t.Errorf("%s: %q", kind, got)
		}
	}
}

func TestEveryRowIsComplete(t *testing.T) {
	for _, rows := range [][]row{operations, localFiles} {
		for _, r := range rows {
			if (r.Code == "") != (r.Model == "") || r.Model == "" && r.Person == "" || r.Model != "" && !sentences(r.Model) || r.Person != "" && !sentences(r.Person) {
				t.Errorf("%v: %+v", r.err, r.Hint)
			}
		}
	}
}

func TestEverySubjectsHintIsForACodeThatExists(t *testing.T) {
	codes := append(statuses, CodeCancelled)
	for _, code := range contract.Codes {
		codes = append(codes, string(code))
	}
	for s := Execution; s <= ChunkedRun; s++ {
		if len(subjects[s]) == 0 {
			t.Errorf("subject %d has no hint", s)
		}
		for code := range subjects[s] {
			if got, ok := About(s, code); !ok || !slices.Contains(codes, code) || !sentences(got) {
				t.Errorf("subject %d, %s: %q", s, code, got)
			}
		}
	}
	for _, status := range statuses { // a run of the relay's own never shows the hints of a user's run
		for _, s := range []Subject{KernelState, ChunkedRun} {
			if _, ok := About(s, status); !ok {
				t.Errorf("subject %d has no hint for %s", s, status)
			}
		}
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
