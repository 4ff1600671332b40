package notebook

import "testing"

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
	if err := all.SetAllOutputs([]NewOutputs{{2, 3, stream}, {0, 1, stream}}); err != nil || string(all.Bytes()) != string(one.Bytes()) {
		t.Errorf("%v\n%s\nwant\n%s", err, all.Bytes(), one.Bytes())
	}
	before := string(all.Bytes())
	if err := all.SetAllOutputs([]NewOutputs{{0, 9, nil}, {1, 9, nil}}); err == nil || string(all.Bytes()) != before {
		t.Errorf("with a cell that has no outputs: %v, and it must change nothing", err)
	}
}
