package export

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"colabrelay/relay/history"
	"colabrelay/relay/notebook"
	"colabrelay/relay/plain"
	"colabrelay/shared/contract"
)

func pictureRuns() []history.Whole {
	started := time.Date(2026, 1, 1, 12, 0, 0, 0, time.Local)
	finished := started.Add(90 * time.Second)
	events := []contract.Event{
		{Type: contract.EventStream, Text: "```\x1b[31mred\x1b[0m\x1b]0;title\a\n"},
		{Type: contract.EventDisplayData, Data: map[string]json.RawMessage{
			"image/png": json.RawMessage(`{"blob":{"number":1,"sha256":"x","bytes":3}}`), "text/plain": json.RawMessage(`"<Figure>"`),
		}},
		{Type: contract.EventDisplayData, Data: map[string]json.RawMessage{"image/svg+xml": json.RawMessage(`"<svg/>"`)}},
		{Type: contract.EventDisplayData, Data: map[string]json.RawMessage{"image/png": json.RawMessage(`"not base64!"`), "text/plain": json.RawMessage(`"text"`)}},
	}
	return []history.Whole{
		{Fetch: fetchPNG, Run: history.Run{
			Head:      history.Head{Runtime: "work\x1b[2J", Name: "train.py\n", CodeCut: true},
			Execution: contract.Execution{ExecutionID: "e1", Status: contract.StatusTimedOut, Reason: "the deadline passed", CreatedAt: started, StartedAt: &started, FinishedAt: &finished, Events: events},
			Code:      "%pip install x\nprint('```')\n  %y\n",
		}},
		{Run: history.Run{Head: history.Head{Runtime: "work"}, Execution: contract.Execution{ExecutionID: "e2", Status: contract.StatusSucceeded, CreatedAt: started}, Code: "%%bash\necho 1"}},
	}
}

func fetchPNG(_ context.Context, _ contract.Blob, w io.Writer) error {
	_, err := io.WriteString(w, "png")
	return err
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestMarkdown(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "my report (1).md")
	if err := Write(t.Context(), path, pictureRuns(), false); err != nil {
		t.Fatal(err)
	}
	want := "## Run 1: train.py , 2026-01-01 12:00:00, work, timed_out, 1 min 30 s\n\n" +
		"````python\n%pip install x\nprint('```')\n  %y\n\n# The rest of this code was too long to be kept.\n````\n\n" +
		"````\n```red\n````\n\n" +
		"![](my%20report%20%281%29_files/1-2.png)\n\n" +
		"![](my%20report%20%281%29_files/1-3.svg)\n\n" +
		"```\ntext\n```\n\n" +
		"```\n[this run's status is timed_out: the deadline passed]\n```\n\n" +
		"## Run 2: 2026-01-01 12:00:00, work, succeeded\n\n```python\n%%bash\necho 1\n```\n\n"
	if got := readFile(t, path); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := readFile(t, filepath.Join(dir, "my report (1)_files", "1-2.png")); got != "png" {
		t.Errorf("the picture has %q", got)
	}
	book := filepath.Join(dir, "x.ipynb")
	if err := Write(t.Context(), book, pictureRuns(), false); err != nil || !strings.Contains(readFile(t, book), `"image/png": "cG5n"`) {
		t.Errorf("the notebook lacks the picture: %v", err)
	}
}

func TestPython(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.PY")
	if err := Write(t.Context(), path, pictureRuns(), false); err != nil {
		t.Fatal(err)
	}
	want := "# %% train.py , 2026-01-01 12:00:00, work, timed_out, 1 min 30 s\n" +
		"# %pip install x\nprint('```')\n  %y\n\n# The rest of this code was too long to be kept.\n\n" +
		"# %% 2026-01-01 12:00:00, work, succeeded\n# %%bash\n# echo 1\n"
	if got := readFile(t, path); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestAnExistingFileIsReplacedOnlyByForce(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.md")
	picture := filepath.Join(dir, "x_files", "1-2.png")
	if err := os.Mkdir(filepath.Dir(picture), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, existing := range []string{path, picture} {
		if err := os.WriteFile(existing, []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := Write(t.Context(), path, pictureRuns(), false); !errors.Is(err, ErrExists) || readFile(t, existing) != "old" {
			t.Errorf("%s: %v", existing, err)
		}
		if err := Write(t.Context(), path, pictureRuns(), true); err != nil || readFile(t, existing) == "old" {
			t.Errorf("%s: %v", existing, err)
		}
		if err := errors.Join(os.Remove(path), os.Remove(picture)); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(dir, "x_files", "1-3.svg")); err != nil {
			t.Fatal(err)
		}
	}
}

// link is what a heading or a text outside of a fence may refer to: pictures of this document.
var link = regexp.MustCompile(`^!\[\]\((x%20y_files/\d+-\d+\.(?:png|jpg|gif|svg))\)$`)

// notShown is the only sentence outside of a fence.
var notShown = regexp.MustCompile(`^Characters of this code that are not shown: \d+\.$`)

// FuzzDocuments exports a run with any code and any events, one a line. What the VM sent stays
// in fences, escapes no folder, and has no control or hidden characters, which a notebook keeps as
// escapes; the same run makes the same bytes.
func FuzzDocuments(f *testing.F) {
	f.Add("print('```')\n%y", "succeeded", "n.py\n", []byte(`{"type":"stream","text":"`+"```"+`\u001b[31mred\n"}`))
	f.Add("%%bash\necho\r1", "<img src=https://a.example> ![](b) `x`", "", []byte(`{"type":"display_data","data":{"image/png":"aGk=","image/svg+xml":"<svg/>","text/plain":"p"}}`))
	f.Add("'''", "succeeded", "", []byte(`{"type":"stream","text":"a\n`+"```"+`\n# h\n"}`))
	f.Add("", "failed", "\u202e", []byte(`{"type":"error","ename":"E","evalue":"v","traceback":["`+"````"+`","\u001b]0;t\u0007"]}`+"\n"+`{"type":"execute_result","data":{"text/plain":["a","b"]}}`))
	f.Add("x\x00\xff", "timed_out\n# h", "../../x", []byte(`{"type":"display_data","data":{"image/jpeg":{"blob":{"number":1,"sha256":"x","bytes":3}}}}`+"\n"+`{"type":"gap","events":3,"bytes":9}`))
	const hidden = "\u009b31m \x1b]0;t\a \u202e \u2028 \u200b \U000e0041 \ue000 \u200d"
	text, _ := json.Marshal(hidden)
	f.Add("x = '"+hidden+"'", "timed_out"+hidden, "n"+hidden, bytes.ReplaceAll([]byte(`{"type":"stream","text":HIDDEN}
{"type":"display_data","data":{"text/plain":HIDDEN}}
{"type":"error","ename":HIDDEN,"evalue":HIDDEN,"traceback":[HIDDEN]}`), []byte("HIDDEN"), text))
	f.Fuzz(func(t *testing.T, code, status, name string, lines []byte) {
		var events []contract.Event
		for line := range bytes.Lines(lines) {
			var ev contract.Event
			if json.Unmarshal(line, &ev) == nil && len(ev.Data) < 10 {
				events = append(events, ev)
			}
		}
		run := func() []history.Whole {
			e := contract.Execution{ExecutionID: "e", Status: contract.Status(status), Reason: status, Events: events}
			return []history.Whole{{Fetch: fetchPNG, Run: history.Run{Head: history.Head{Runtime: "r", Name: name}, Execution: e, Code: code}}}
		}
		for ext, format := range formats {
			d, err := format(t.Context(), "x y", run())
			again, other := format(t.Context(), "x y", run())
			if err != nil || other != nil || !bytes.Equal(d.text, again.text) {
				t.Fatalf("%s: %v, %v: not twice the same", ext, err, other)
			}
			for file := range d.files {
				if path.Dir(file) != "x y_files" || path.Clean(file) != file {
					t.Errorf("there is a file %q", file)
				}
			}
			switch ext {
			case ".md":
				checkMarkdown(t, d)
			case ".py":
				source := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(strings.TrimRight(code, "\n"))
				heading, rest, _ := strings.Cut(string(d.text), "\n")
				if !strings.HasPrefix(heading, "# %% ") || strings.ContainsFunc(heading, unicode.IsControl) || len(plain.Unshown(heading)) > 0 || strings.Count(rest, "\n") != strings.Count(source, "\n")+1 {
					t.Errorf("%q became %q", source, d.text)
				}
			case ".ipynb":
				if read, err := notebook.Parse(d.text); err != nil || read.Len() != 1 || read.Cell(0).Source != strings.TrimRight(strings.ToValidUTF8(code, "\ufffd"), "\n") || len(plain.Unshown(string(d.text))) > 0 {
					t.Errorf("the notebook has other code or hidden characters, or cannot be read: %v", err)
				}
			}
		}
	})
}

// checkMarkdown reads the page as Markdown is read: a fence ends at a line of as many backticks.
func checkMarkdown(t *testing.T, d document) {
	t.Helper()
	fence, pictures := "", 0
	for i, line := range strings.Split(string(d.text), "\n") {
		switch {
		case fence != "":
			if strings.TrimRight(line, " \t\r") == fence {
				fence = ""
			}
		case strings.HasPrefix(line, "```"):
			fence = strings.TrimSuffix(line, "python")
		case i == 0 && strings.HasPrefix(line, "## Run 1: "), line == "", notShown.MatchString(line):
		case link.MatchString(line):
			file := strings.ReplaceAll(link.FindStringSubmatch(line)[1], "%20", " ")
			if d.files[file] == nil {
				t.Errorf("there is no picture %q", file)
			}
			pictures++
		default:
			t.Errorf("there is the line %q outside of a fence in\n%s", line, d.text)
		}
		if i == 0 && (strings.ContainsFunc(line, unicode.IsControl) || !utf8.ValidString(line) || strings.Contains(strings.ReplaceAll(line, `\[`, ""), "[")) {
			t.Errorf("the heading is %q", line)
		}
	}
	if fence != "" || pictures != len(d.files) {
		t.Errorf("the fence %q is open, %d pictures of %d in\n%s", fence, pictures, len(d.files), d.text)
	}
	if hidden := plain.Unshown(string(d.text)); len(hidden) > 0 {
		t.Errorf("there are %q in %q", hidden, d.text)
	}
}
