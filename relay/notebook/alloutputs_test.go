package notebook

import (
	"strings"
	"testing"
)

// The outputs of several cells at once are those of one cell after the other.
func TestOutputsOfSeveralCellsAtOnce(t *testing.T) {
	t.Parallel()
	text := `{"cells": [
 {"cell_type": "code", "id": "a", "metadata": {}, "execution_count": null, "outputs": [], "source": "1"},
 {"cell_type": "markdown", "id": "b", "metadata": {}, "source": "2"},
 {"cell_type": "code", "id": "c", "metadata": {}, "execution_count": null, "outputs": [], "source": "3"}
], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}`
	stream := []map[string]any{{"output_type": "stream", "name": "stdout", "text": "x\ny\n"}}
	one, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	same := *one
	all := &same
	for _, i := range []int{2, 0} {
		if err := one.SetOutputs(i, i+1, stream); err != nil {
			t.Fatal(err)
		}
	}
	if err := all.SetAllOutputs([]NewOutputs{{2, 3, stream, nil}, {0, 1, stream, nil}}, MaxBytes); err != nil || string(all.Bytes()) != string(one.Bytes()) {
		t.Errorf("%v\n%s\nwant\n%s", err, all.Bytes(), one.Bytes())
	}
	before := string(all.Bytes())
	if err := all.SetAllOutputs([]NewOutputs{{0, 9, nil, nil}, {1, 9, nil, nil}}, MaxBytes); err == nil || string(all.Bytes()) != before {
		t.Errorf("with a cell that has no outputs: %v, and it must change nothing", err)
	}
}

// The first cell's outputs have room, and the second one's have not. When they become shorter, they
// have.
func TestOutputsWithoutRoomAreReplaced(t *testing.T) {
	t.Parallel()
	d, err := Parse([]byte(`{"cells": [
 {"cell_type": "code", "id": "a", "metadata": {}, "execution_count": null, "outputs": [], "source": "1"},
 {"cell_type": "code", "id": "b", "metadata": {}, "execution_count": null, "outputs": [], "source": "2"}
], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}`))
	must(t, err)
	stream := func(text string) []map[string]any {
		return []map[string]any{{"output_type": "stream", "name": "stdout", "text": text}}
	}
	most := len(d.Bytes()) + 1000
	set := func(outputs ...string) {
		t.Helper()
		var all []NewOutputs
		for i, text := range outputs {
			all = append(all, NewOutputs{Index: i, Outputs: stream(text), Instead: stream("elsewhere")})
		}
		must(t, d.SetAllOutputs(all, most))
		if len(d.Bytes()) > most {
			t.Errorf("the file has %d bytes, of at most %d", len(d.Bytes()), most)
		}
	}
	for _, c := range []struct{ first, second, want string }{
		{strings.Repeat("x", 600), strings.Repeat("y", 600), "elsewhere"},
		{"x", strings.Repeat("y", 600), strings.Repeat("y", 600)},
	} {
		set(c.first, c.second)
		if text := string(d.Bytes()); !strings.Contains(text, `"`+c.first+`"`) || !strings.Contains(text, `"`+c.want+`"`) || strings.Count(text, "output_type") != 2 {
			t.Errorf("the file is %s", text)
		}
	}
}
