package export

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/relay/notebook"
	"colabrelay/relay/plain"
	"colabrelay/shared/contract"
)

func TestAHeadingOfMarkdownHasNoMarkupOfTheVM(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.md")
	runs := []Run{{Execution: contract.Execution{Status: "<img src=https://a.example/p> ![](http://b.example) `x`"}, Code: "1"}}
	if err := Write(t.Context(), path, runs, false); err != nil {
		t.Fatal(err)
	}
	heading, _, _ := strings.Cut(readFile(t, path), "\n")
	if want := "\\<img src=https\\://a.example/p> !\\[\\](http\\://b.example) \\`x\\`"; !strings.HasSuffix(heading, want) {
		t.Errorf("%s, want %s", heading, want)
	}
}

// A status with a line break would add a line of Python, or of Markdown.
func TestAStatusOfTheVMStaysInItsLine(t *testing.T) {
	runs := []Run{{Execution: contract.Execution{Status: "succeeded\nimport os\r# heading\u2028"}, Code: "1"}}
	for name, lines := range map[string]int{"x.py": 3, "x.md": 11} {
		path := filepath.Join(t.TempDir(), name)
		if err := Write(t.Context(), path, runs, false); err != nil {
			t.Fatal(err)
		}
		got := readFile(t, path)
		if heading, _, _ := strings.Cut(got, "\n"); !strings.HasSuffix(heading, "succeeded import os# heading") || len(strings.Split(got, "\n")) != lines {
			t.Errorf("%s has %q", name, got)
		}
	}
}

func TestAMillionBackticksAreFenced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.md")
	text := strings.Repeat("`", 1<<20)
	if err := Write(t.Context(), path, []Run{{Code: "1", Events: []contract.Event{{Type: contract.EventStream, Text: text}}}}, false); err != nil {
		t.Fatal(err)
	}
	if got := readFile(t, path); !strings.Contains(got, "\n"+text+"`\n"+text+"\n"+text+"`\n") {
		t.Errorf("%d bytes", len(got))
	}
}

func TestPythonHasNoHiddenLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.py")
	if err := Write(t.Context(), path, []Run{{Code: "%%bash\necho\rimport os\r\n"}}, false); err != nil {
		t.Fatal(err)
	}
	if got := readFile(t, path); !strings.HasSuffix(got, "\n# %%bash\n# echo\n# import os\n# \n") {
		t.Errorf("%q", got)
	}
}

// A picture that may not be replaced must not leave others behind.
func TestNothingIsWrittenIfAPictureExists(t *testing.T) {
	dir := t.TempDir()
	existing := filepath.Join(dir, "x_files", "1-3.svg")
	if err := errors.Join(os.Mkdir(filepath.Dir(existing), 0o700), os.WriteFile(existing, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for range 10 { // pictures have no order
		if err := Write(t.Context(), filepath.Join(dir, "x.md"), pictureRuns(), false); !errors.Is(err, ErrExists) {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "x_files", "1-2.png")); err == nil {
			t.Fatal("the other picture was written")
		}
	}
}

// Readers of a document, also in a terminal, get no control character and no hidden text. A
// notebook keeps them as escapes, so that they mean what they did.
func TestDocumentsHaveNoHiddenCharacters(t *testing.T) {
	const hidden = "\u009b31m \x1b]0;t\a \u202e \u2028 \u200b \U000e0041 \ue000 \u200d"
	payload := func(text string) json.RawMessage {
		raw, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	runs := []Run{{Execution: contract.Execution{ExecutionID: "e", Status: "timed_out" + hidden, Reason: "late" + hidden}, Runtime: "r" + hidden, Name: "n" + hidden, Code: "x = '" + hidden + "'", Events: []contract.Event{
		{Type: contract.EventStream, Name: contract.Stdout, Text: "out" + hidden + strings.Repeat("long ", 20_000) + "end\n"},
		{Type: contract.EventDisplayData, Data: map[string]json.RawMessage{"text/plain": payload("display" + hidden)}},
		{Type: contract.EventError, EName: "E" + hidden, EValue: hidden, Traceback: []string{"traceback" + hidden}},
	}}}
	for _, name := range []string{"x.md", "x.ipynb", "x.py"} {
		path := filepath.Join(t.TempDir(), name)
		if err := Write(t.Context(), path, runs, false); err != nil {
			t.Fatal(err)
		}
		got := readFile(t, path)
		shown := got
		if name == "x.py" { // the program itself must stay as it ran
			shown = strings.Replace(got, hidden, "", 1)
		}
		if left := plain.Unshown(shown); len(left) > 0 {
			t.Errorf("%s has %q", name, left)
		}
		if name == "x.md" && !(strings.Contains(got, "Characters of this code that are not shown: 9.") && strings.Contains(got, "long end") && strings.Contains(got, "traceback")) {
			t.Errorf("%s", got)
		}
		if name == "x.ipynb" {
			doc, err := notebook.Parse([]byte(got))
			if err != nil || doc.Cell(0).Source != runs[0].Code || !strings.Contains(got, `\ud`) {
				t.Errorf("%v: %.400q", err, got)
			}
		}
	}
}
