package notebook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os/exec"
	"reflect"
	"slices"
	"testing"

	"colabrelay/relay/output"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

// writing is how programs write notebooks: our style, and the arguments of Python's json.dumps
// for the same.
type writing struct {
	style
	python string
}

var writings = []writing{
	{jupyterStyle, `{"indent": 1, "ensure_ascii": false}`},
	{style{"\n", "  ", ",", ": ", false}, `{"indent": 2, "ensure_ascii": false}`},
	{style{"\n", "    ", ",", ": ", true}, `{"indent": 4}`},
	{style{"\n", "\t", ",", ": ", false}, `{"indent": "\t", "ensure_ascii": false}`},
	{style{"\n", "", ",", ": ", false}, `{"indent": 0, "ensure_ascii": false}`},
	{style{"\n", " ", ",", ":", false}, `{"indent": 1, "separators": [",", ":"], "ensure_ascii": false}`},
	{style{"", "", ", ", ": ", true}, `{}`},
	{style{"", "", ",", ":", false}, `{"separators": [",", ":"], "ensure_ascii": false}`},
	{style{"\r\n", "  ", ",", ": ", false}, `{"indent": 2, "ensure_ascii": false}`},
}

// orders are the orders of keys in cells: sorted as Jupyter, and as Colab.
var orders = [][]string{
	{"attachments", "cell_type", "execution_count", "id", "metadata", "outputs", "source"},
	{"cell_type", "source", "metadata", "id", "execution_count", "outputs", "attachments"},
}

// model is a notebook as a tree, and what its edits do to the tree.
type model struct {
	random *rand.Rand
	minor  int
	colab  bool
	cells  []map[string]any
}

// text returns some text with all that needs care.
func (m *model) text() string {
	parts := []string{"x = 1", "\n", "\n", "ü", "\u2028", "\r\n", "\r", "\f", "\"q\\", "<b>&", "😀", "\x00\x7f", "\t", "#@title T"}
	text := ""
	for range m.random.IntN(6) {
		text += parts[m.random.IntN(len(parts))]
	}
	return text
}

func anys(texts []string) []any {
	list := []any{}
	for _, text := range texts {
		list = append(list, text)
	}
	return list
}

// cell returns a cell of a type as a tree.
func (m *model) cell(t CellType, source string) map[string]any {
	c := map[string]any{"cell_type": string(t), "metadata": map[string]any{}, "source": anys(output.SplitLines(source))}
	if t == Code {
		c["outputs"], c["execution_count"] = []any{}, nil
	}
	if m.colab {
		c["metadata"] = map[string]any{"id": fmt.Sprintf("colab%07d", m.random.IntN(1e7))}
	}
	if m.minor >= 5 {
		c["id"] = fmt.Sprintf("%08x", m.random.Uint32())
	}
	return c
}

// file writes the tree.
func (m *model) file(st style, order []string) []byte {
	var cells []any
	for _, c := range m.cells {
		var fields []field
		for _, key := range order {
			if value, ok := c[key]; ok {
				fields = append(fields, field{key, value})
			}
		}
		cells = append(cells, fields)
	}
	if cells == nil {
		cells = []any{}
	}
	b, err := st.write(nil, []field{{"nbformat", 4}, {"nbformat_minor", m.minor}, {"metadata", map[string]any{"ü": 1.5}}, {"cells", cells}}, "")
	if err != nil {
		panic(err)
	}
	return b
}

// step makes the same random edit in the document and in the model.
func (m *model) step(t *testing.T, d *Document) {
	t.Helper()
	kind := m.random.IntN(6)
	if len(m.cells) == 0 {
		kind = 0
	}
	types := []CellType{Code, Code, Markdown, Raw}
	cellType, i := types[m.random.IntN(len(types))], 0
	if len(m.cells) > 0 {
		i = m.random.IntN(len(m.cells))
	}
	var err error
	switch kind {
	case 0:
		err = m.insert(d, m.random.IntN(len(m.cells)+1), NewCell{Type: cellType, Source: m.text(), Tags: []string{"a", "ü"}[:m.random.IntN(3)]})
	case 1, 2:
		source := m.text()
		if kind == 1 {
			cellType = ""
			source = d.Cell(i).Source + "\n" + source
		}
		err = d.SetSource(i, source, cellType)
		m.setSource(i, source, cellType)
	case 3:
		err = d.Delete(i)
		m.cells = slices.Delete(m.cells, i, i+1)
	case 4:
		to := m.random.IntN(len(m.cells))
		err = d.Move(i, to)
		c := m.cells[i]
		m.cells = slices.Insert(slices.Delete(m.cells, i, i+1), to, c)
	case 5:
		err = m.setOutputs(d, i)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (m *model) insert(d *Document, at int, c NewCell) error {
	isColab := at > 0 && m.colabID(at-1) != "" || at < len(m.cells) && m.colabID(at) != ""
	handle, err := d.Insert(at, c)
	if err != nil {
		return err
	}
	m.colab = false
	cell := m.cell(c.Type, c.Source)
	metadata := map[string]any{}
	if len(c.Tags) > 0 {
		metadata["tags"] = anys(c.Tags)
	}
	if isColab {
		metadata["id"] = d.cells[at].colab
		if len(d.cells[at].colab) != 12 {
			return fmt.Errorf("the new cell has the id %q in its metadata", d.cells[at].colab)
		}
	}
	if cell["metadata"] = metadata; m.minor >= 5 {
		cell["id"] = handle
	}
	if found, err := d.Find(handle); err != nil || found != at {
		return fmt.Errorf("%s is found at %d: %v", handle, found, err)
	}
	m.cells = slices.Insert(m.cells, at, cell)
	return nil
}

func (m *model) colabID(i int) string {
	id, _ := m.cells[i]["metadata"].(map[string]any)["id"].(string)
	return id
}

func (m *model) setSource(i int, source string, t CellType) {
	c := m.cells[i]
	if _, isString := c["source"].(string); isString {
		c["source"] = source
	} else {
		c["source"] = anys(output.SplitLines(source))
	}
	switch {
	case t == "" || string(t) == c["cell_type"]:
		return
	case t == Code:
		delete(c, "attachments")
		c["outputs"], c["execution_count"] = []any{}, nil
	default:
		delete(c, "outputs")
		delete(c, "execution_count")
	}
	c["cell_type"] = string(t)
}

func (m *model) setOutputs(d *Document, i int) error {
	count := m.random.IntN(3)
	outputs := []map[string]any{}
	for range m.random.IntN(3) {
		outputs = append(outputs, map[string]any{"output_type": "stream", "name": "stdout", "text": output.SplitLines(m.text())})
	}
	err := d.SetOutputs(i, count, outputs)
	c := m.cells[i]
	if c["cell_type"] != "code" {
		if err == nil {
			return fmt.Errorf("a %s cell got outputs", c["cell_type"])
		}
		return nil
	}
	c["execution_count"] = nil
	if count > 0 {
		c["execution_count"] = json.Number(fmt.Sprint(count))
	}
	list := []any{}
	for _, o := range outputs {
		o = maps.Clone(o)
		o["text"] = anys(o["text"].([]string))
		list = append(list, o)
	}
	c["outputs"] = list
	return err
}

// decoded returns the cells of a file as trees.
func decoded(t *testing.T, text []byte) (cells []map[string]any) {
	t.Helper()
	var notebook struct{ Cells []map[string]any }
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&notebook); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return notebook.Cells
}

// Random edits do to the cells what they do to a tree, and leave a file that Python's json would
// write byte for byte with the options of the original.
func TestRandomEditsFollowAModel(t *testing.T) {
	tier.Long(t)
	rounds := uint64(4)
	var written []map[string]string
	for seed := range rounds {
		for _, w := range writings {
			m := &model{random: rand.New(rand.NewPCG(seed, 1)), minor: int(4 + seed%2)}
			for range m.random.IntN(4) {
				m.colab = m.random.IntN(2) == 0
				m.cells = append(m.cells, m.cell(Code, m.text()), m.cell(Markdown, m.text()))
			}
			if len(m.cells) > 2 {
				m.cells[1]["attachments"], m.cells[2]["source"] = map[string]any{}, "a string\nof lines"
			}
			text := m.file(w.style, orders[seed/2%2])
			d := parsed(t, string(text))
			for range 12 {
				m.step(t, d)
				if got := decoded(t, d.Bytes()); !reflect.DeepEqual(got, append([]map[string]any{}, m.cells...)) {
					t.Fatalf("seed %d, %s:\n%s\nbut the model has\n%s", seed, w.python, d.Bytes(), m.file(w.style, orders[0]))
				}
				written = append(written, map[string]string{"python": w.python, "text": string(d.Bytes())})
			}
		}
	}
	checkWriting(t, written)
}

// checkWriting checks that Python's json writes these files like that.
func checkWriting(t *testing.T, files []map[string]string) {
	t.Helper()
	cmd := exec.Command(stacks.Notebook(t), "-c", `
import json, sys
for file in json.load(sys.stdin):
    text, options = file["text"].replace("\r\n", "\n"), json.loads(file["python"])
    want = json.dumps(json.loads(text), **options)
    assert text == want, f"{options}\n{text}\nbut Python writes\n{want}"
`)
	input, err := json.Marshal(files)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin = bytes.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
