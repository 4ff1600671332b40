package notebook

import (
	"strings"
	"testing"
)

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
