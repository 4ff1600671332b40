package kernelpy

import (
	"encoding/json"
	"strings"
	"testing"
)

var call = Call{Function: "chunked.run.round", Arguments: []any{"a\u2028\"😀\n", 5, true}, MIME: "x/y", Delivery: Display}

func TestSameCallGivesTheSameCode(t *testing.T) {
	for _, withPackage := range []bool{false, true} {
		first := call.Code(withPackage)
		if again := call.Code(withPackage); again != first {
			t.Error("the code differs")
		}
	}
}

// Text that looks like one of the template's own names is an argument like any other.
func TestArgumentsAreNeverFilledIn(t *testing.T) {
	code := Call{Function: "f.g", Arguments: []any{"CODE CALL ARGUMENTS SOURCES"}}.Code(false)
	if strings.Count(code, "CODE CALL ARGUMENTS SOURCES") != 1 {
		t.Error(code)
	}
}

func TestScriptsAreNotSentToKernels(t *testing.T) {
	for path := range sources() {
		if strings.HasPrefix(path, "scripts/") || !strings.HasSuffix(path, ".py") {
			t.Errorf("%q is sent", path)
		}
	}
	for _, name := range []string{"find", "packages", "start"} {
		if !strings.Contains(Script(name), `"""`) {
			t.Errorf("the script %q is empty", name)
		}
	}
}

func TestOnlyAReportOfThisPackageMeansThatItIsMissing(t *testing.T) {
	for report, want := range map[string]bool{
		`{"package":"` + Package() + `"}`: true,
		`{"package":"colab_relay_0"}`:     false,
		`{}`:                              false,
		`7`:                               false,
	} {
		if got := IsMissing(map[string]json.RawMessage{missingMIME: json.RawMessage(report)}); got != want {
			t.Errorf("%s means missing: %t", report, got)
		}
	}
	if IsMissing(nil) {
		t.Error("no data means missing")
	}
}
