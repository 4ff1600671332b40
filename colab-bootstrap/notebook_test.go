package bootstrap

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"regexp"
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

func TestTheNotebookAsksForAGPU(t *testing.T) {
	text, err := notebook(intro, template)
	if err != nil {
		t.Fatal(err)
	}
	var read struct {
		Metadata struct {
			Accelerator string
			Colab       struct{ GPUType string }
		}
	}
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	if read.Metadata.Accelerator != "GPU" || read.Metadata.Colab.GPUType != "T4" {
		t.Errorf("its metadata is %+v", read.Metadata)
	}
	if !strings.Contains(string(text), "Runtime > Change runtime type") {
		t.Error("its text does not say where to choose another machine")
	}
}

func TestTheFormHasAFieldForEachChoice(t *testing.T) {
	for _, field := range []string{
		`NGROK_DOMAIN = "" #@param {type:"string"}`, `FLAGS = "" #@param {type:"string"}`,
		`MOUNT_DRIVE = False #@param {type:"boolean"}`, `DETACHED = False #@param {type:"boolean"}`,
	} {
		if !strings.Contains(template, "\n"+field+"\n") {
			t.Errorf("the cell lacks the line %q", field)
		}
	}
}

// The notebook and the cell say what they do in five lines, and link the release's page.
func TestNotebookAndCellSayWhatTheyDoInFiveLines(t *testing.T) {
	for releases, page := range map[string]string{
		"https://github.com/someone/colab-relay/releases/download": "https://github.com/someone/colab-relay/releases/tag/v1.2.3",
		"https://example.com/r/":                                   "https://example.com/r/v1.2.3/",
	} {
		r := Release{Releases: releases, Version: "v1.2.3", SHA256AMD64: digestOf("a"), SHA256ARM64: digestOf("b")}
		cell, err := Cell(r)
		if err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"notebook": introOf(t, r), "cell": strings.ReplaceAll(cell, "\n# ", "\n")} {
			if !strings.Contains(text, page) {
				t.Errorf("the %s does not link %s", name, page)
			}
			if blank := regexp.MustCompile(`@[A-Z0-9]+@`).FindString(text); blank != "" {
				t.Errorf("the %s has the blank %s", name, blank)
			}
			inOrder(t, name, text, "\n1. reads ", "\n2. downloads ", "SHA-256", "\n3. starts it", "\n4. opens an ngrok tunnel", "\n5. prints the public URL", "pairing string")
		}
	}
}

// inOrder fails unless a text has each part after the one before it.
func inOrder(t *testing.T, name, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		_, after, found := strings.Cut(text, part)
		if !found {
			t.Errorf("the %s lacks %q, or has it too early", name, part)
			return
		}
		text = after
	}
}
