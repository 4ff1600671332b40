package nb

import (
	"slices"
	"strings"
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

func TestTheEditorIsThePersons(t *testing.T) {
	for _, test := range []struct{ visual, editor, want string }{
		{"code --wait", "vim", "code --wait"}, {"", "nano -w", "nano -w"}, {"  ", "ed", "ed"},
	} {
		env := map[string]string{"VISUAL": test.visual, "EDITOR": test.editor}
		if got := editor(func(name string) string { return env[name] }); !slices.Equal(got, strings.Fields(test.want)) {
			t.Errorf("%+v: %q", test, got)
		}
	}
	if got := editor(func(string) string { return "" }); len(got) != 1 {
		t.Errorf("%q", got)
	}
}

func TestSourcesAreText(t *testing.T) {
	for in, want := range map[string]string{"a\n": "a", "a\n\n": "a\n", "\ufeffa\r\nb": "a\nb", " a": " a"} {
		if got, err := readSource(strings.NewReader(in)); err != nil || got != want {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
	for in, want := range map[string]string{" \n": "is empty", "\xff": "not UTF-8", strings.Repeat("a", 4<<20+1): "put data into a file"} {
		if _, err := readSource(strings.NewReader(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.10q: %v", in, err)
		}
	}
}

func TestPathsInCommandsMeanThemselvesInAShell(t *testing.T) {
	for path, want := range map[string]string{
		"~/a b.ipynb":         "'~/a b.ipynb'",
		"dir/a-1.ipynb":       "dir/a-1.ipynb",
		"a;$(touch x).ipynb":  "'a;$(touch x).ipynb'",
		"it's `id`.ipynb":     `'it'\''s ` + "`id`.ipynb'",
		"-rf.ipynb":           "./-rf.ipynb",
		"a\n\x1b[31mrm.ipynb": "'a rm.ipynb'",
		"données/été.ipynb":   "'données/été.ipynb'",
	} {
		if got := pasted(path); got != want {
			t.Errorf("%q: %s, want %s", path, got, want)
		}
	}
}
