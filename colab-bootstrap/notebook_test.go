package bootstrap

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"
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

func TestTheNotebooksCodeEqualsTheCell(t *testing.T) {
	r := Release{Releases: "https://example.com/<r>&x", Version: "v1", SHA256AMD64: digestOf("a"), SHA256ARM64: digestOf("b")}
	cell, err := Cell(r)
	if err != nil {
		t.Fatal(err)
	}
	text, err := Notebook(r)
	if err != nil {
		t.Fatal(err)
	}
	var read struct {
		Cells []struct {
			Type   string   `json:"cell_type"`
			Source []string `json:"source"`
		} `json:"cells"`
	}
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	var code []string
	for _, c := range read.Cells {
		if c.Type == "code" {
			code = append(code, strings.Join(c.Source, "")+"\n")
		}
	}
	if len(code) != 1 || code[0] != cell {
		t.Errorf("the notebook's code is\n%q\nthe cell is\n%q", code, cell)
	}
}
