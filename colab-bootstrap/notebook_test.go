package bootstrap

import (
	"bytes"
	"flag"
	"os"
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
