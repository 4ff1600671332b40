package export

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/contract"
)

func pictureRuns() []Run {
	started := time.Date(2026, 1, 1, 12, 0, 0, 0, time.Local)
	finished := started.Add(90 * time.Second)
	return []Run{
		{
			Execution: contract.Execution{ExecutionID: "e1", Status: contract.StatusTimedOut, Reason: "the deadline passed", CreatedAt: started, StartedAt: &started, FinishedAt: &finished},
			Runtime:   "work\x1b[2J", Name: "train.py\n", Code: "%pip install x\nprint('```')\n  %y\n", CodeCut: true,
			Events: []contract.Event{
				{Type: contract.EventStream, Text: "```\x1b[31mred\x1b[0m\x1b]0;title\a\n"},
				{Type: contract.EventDisplayData, Data: map[string]json.RawMessage{
					"image/png": json.RawMessage(`{"blob":{"number":1,"sha256":"x","bytes":3}}`), "text/plain": json.RawMessage(`"<Figure>"`),
				}},
				{Type: contract.EventDisplayData, Data: map[string]json.RawMessage{"image/svg+xml": json.RawMessage(`"<svg/>"`)}},
				{Type: contract.EventDisplayData, Data: map[string]json.RawMessage{"image/png": json.RawMessage(`"not base64!"`), "text/plain": json.RawMessage(`"text"`)}},
			},
			Fetch: func(_ context.Context, _ contract.Blob, w io.Writer) error {
				_, err := io.WriteString(w, "png")
				return err
			},
		},
		{Execution: contract.Execution{ExecutionID: "e2", Status: contract.StatusSucceeded, CreatedAt: started}, Runtime: "work", Code: "%%bash\necho 1"},
	}
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
