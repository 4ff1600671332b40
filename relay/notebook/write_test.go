package notebook

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"colabrelay/relay/output"
	"colabrelay/shared/contract"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

// nbformat itself must accept what Write writes, without a warning, and write the same bytes.
func TestNbformatReadsWhatIsWritten(t *testing.T) {
	tier.Long(t)
	hostile := "a\x00\x1b[31m\xff<b>&amp;\u0085\u2029\r\n\x0b\x1c" + strings.Repeat("`", 3)
	cell := new(output.Collector).Begin("")
	cell.Add(t.Context(), []contract.Event{
		{Type: contract.EventStream, Name: contract.Stdout, Text: hostile}, {Type: contract.EventError, EName: hostile, EValue: hostile, Traceback: []string{hostile}},
		{Type: contract.EventExecuteResult, ExecutionCount: 7, Metadata: json.RawMessage(`{"isolated": true}`), Data: map[string]json.RawMessage{
			"image/png": json.RawMessage(`"Ynl0ZXM="`), "text/html": json.RawMessage(`"<p>\n</p>"`),
			"application/vnd.x+json": json.RawMessage(`{"z": 1, "a": null}`), "image/svg+xml": json.RawMessage(`"<svg/>\n"`),
		}},
		{Type: contract.EventDisplayData, Data: map[string]json.RawMessage{
			"text/plain": json.RawMessage(`["a\n", "b"]`), "weird\x00type": json.RawMessage(`"x"`), "application/json": json.RawMessage("3"),
		}},
	}, nil)
	n := Notebook{Cells: []RunCell{{Seed: "same", Source: "%pip install x\nprint('ü')", Outputs: cell.Outputs(), ExecutionCount: 3}, {Seed: "same"}, {Seed: hostile, Source: hostile}}}
	for _, n := range []Notebook{n, {}} {
		var b bytes.Buffer
		if err := n.Write(&b); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(stacks.Notebook(t), "-W", "error", "-c", `
import sys, nbformat
text = sys.stdin.buffer.read().decode()
notebook = nbformat.reads(text, as_version=4)
nbformat.validate(notebook)
assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5), notebook
again = nbformat.writes(notebook) + "\n"
assert again == text, again + "\n---\n" + text
`)
		cmd.Stdin = &b
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}
}
