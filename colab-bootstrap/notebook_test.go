package bootstrap

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

var update = flag.Bool("update", false, "write colab-relay.ipynb from cell.ipy and intro.md")

func TestTheNotebookInTheFolderHoldsTheCell(t *testing.T) {
	want, err := notebook(intro, template)
	if err != nil {
		t.Fatal(err)
	}
	const file = "colab-relay.ipynb"
	if *update {
		if err := os.WriteFile(file, want, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s does not match cell.ipy and intro.md: run go test ./colab-bootstrap -run Notebook -update", file)
	}
}

// What README.md has in place of a reader's own values.
const (
	readmeRelease = "https://github.com/OWNER/REPO/releases/latest/download"
	readmeToken   = "YOUR-TOKEN"
)

// readmeBlock returns the first fenced block of README.md in that language (empty for none)
// that has a text.
func readmeBlock(t *testing.T, language, text string) string {
	t.Helper()
	readme, err := os.ReadFile(filepath.Join(stacks.Root(), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$").FindAllStringSubmatch(string(readme), -1) {
		if found[1] == language && strings.Contains(found[2], text) {
			return found[2]
		}
	}
	t.Fatalf("README.md has no block %q with %q", language, text)
	return ""
}

// replaceAll replaces every old text, which must be there.
func replaceAll(t *testing.T, text string, pairs ...string) string {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			t.Fatalf("%q is not in\n%s", pairs[i], text)
		}
		text = strings.ReplaceAll(text, pairs[i], pairs[i+1])
	}
	return text
}

// The short cell of README.md downloads the executor and starts it with the token. It needs wget.
func TestTheShortCellOfTheREADMEStartsARelease(t *testing.T) {
	tier.Long(t)
	r, _ := serve(t, standIn)
	v := newVM(t, r)
	v.cell = replaceAll(t, readmeBlock(t, "python", "!wget"), readmeRelease, r.Releases+"/"+r.Version, "executor-linux-amd64", asset, readmeToken, testToken)
	if out := v.run(); !strings.Contains(out, "stand-in executor runs") {
		t.Errorf("the cell showed:\n%s", out)
	}
	if got := v.seen(); got != "\n"+testToken+"\n\n0\n" {
		t.Errorf("the program saw\n%s", got)
	}
}

// The release's notebook has the release's cell, and the short line with the release's own address.
func TestTheNotebookHasTheCellAndTheShortLineOfTheREADME(t *testing.T) {
	_, line, _ := strings.Cut(readmeBlock(t, "python", "!wget"), "\n!")
	r := Release{Releases: "https://example.com/<r>&x", Version: "v1.0.0", SHA256AMD64: digestOf("a"), SHA256ARM64: digestOf("b")}
	cell, err := Cell(r)
	if err != nil {
		t.Fatal(err)
	}
	text, err := Notebook(r)
	if err != nil {
		t.Fatal(err)
	}
	var read struct {
		Cells []struct{ Source []string }
	}
	if err := json.Unmarshal(text, &read); err != nil || len(read.Cells) != 2 {
		t.Fatalf("%d cells, %v", len(read.Cells), err)
	}
	intro, code := strings.Join(read.Cells[0].Source, ""), strings.Join(read.Cells[1].Source, "")+"\n"
	if want := replaceAll(t, "!"+strings.TrimSpace(line), readmeRelease, r.Releases+"/"+r.Version); !strings.Contains(intro, want) {
		t.Errorf("the notebook lacks %q:\n%s", want, intro)
	}
	if code != cell {
		t.Errorf("the notebook's code is\n%q\nthe cell is\n%q", code, cell)
	}
}
