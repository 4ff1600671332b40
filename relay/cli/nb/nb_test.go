package nb

import (
	"testing"

	"colabrelay/relay/cli"
	"colabrelay/relay/parameters"
)

func TestParametersOnTheCommandLineAreJSONOrText(t *testing.T) {
	text, err := parametersOf([]string{"a=1", "b=True", "c=None", "d=x=y", `e="quoted"`, "f=[1, 2]", "g=", "h=1.5e3", "i= x", "j=Infinity", "k=<b>\u2028"})
	want := `{"a": 1, "b": true, "c": null, "d": "x=y", "e": "quoted", "f": [1, 2], "g": "", "h": 1.5e3, "i": " x", "j": Infinity, "k": "\u003cb\u003e\u2028"}`
	if err != nil || text != want {
		t.Errorf("%v\n%s, want\n%s", err, text, want)
	}
	if _, err := parameters.Parse(text); err != nil {
		t.Error(err)
	}
	for _, wrong := range []string{"a", "=1", ""} {
		if _, err := parametersOf([]string{wrong}); cli.ExitCode(err) != cli.ExitUsage {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}
