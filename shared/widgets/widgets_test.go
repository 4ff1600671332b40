package widgets_test

import (
	"encoding/json"
	"strings"
	"testing"

	"colabrelay/shared/widgets"
)

// models returns the models of a JSON object whose members are their traits, with their names.
func models(t *testing.T, text string) widgets.Models {
	t.Helper()
	var states map[string]map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &states); err != nil {
		t.Fatal(err)
	}
	all := widgets.Models{}
	for id, state := range states {
		m := &widgets.Model{State: state}
		_ = json.Unmarshal(state["_"], &m.Name)
		m.Name += "Model"
		all[id] = m
	}
	return all
}

func TestAWidgetsTextIsWhatAPersonReads(t *testing.T) {
	for state, want := range map[string]string{
		`{"w": {"_": "HBox", "children": ["IPY_MODEL_l", "IPY_MODEL_p", "IPY_MODEL_r"]}, "l": {"_": "HTML", "value": "train:\u2007 45%"},
			"p": {"_": "FloatProgress", "value": 27, "max": 60}, "r": {"_": "HTML", "value": " 27/60 [00:02&lt;00:03]"}}`: "train:  45% |████▌     | 27/60 [00:02<00:03]",
		`{"w": {"_": "IntProgress", "value": 3, "min": 1, "max": 5, "description": "bar:"}}`:                       "bar: |█████     | 3/5",
		`{"w": {"_": "IntSlider", "value": 3, "description": "lr"}}`:                                               "lr: 3",
		`{"w": {"_": "Dropdown", "_options_labels": ["a", "b"], "index": 1}}`:                                      "b",
		`{"w": {"_": "Label", "value": "seen", "layout": "IPY_MODEL_y"}, "y": {"_": "Layout", "display": "none"}}`: "",
		`{"w": {"_": "Tab", "titles": ["one", "two"], "children": ["IPY_MODEL_a", "IPY_MODEL_b"]},
			"a": {"_": "HTML", "value": "<b>x</b><br>y"}, "b": {"_": "Checkbox", "value": true, "description": "on"}}`: "one:\nx\ny\ntwo:\non: true",
		`{"w": {"_": "Output", "outputs": [{"output_type": "stream", "text": "a\n"}, {"data": {"text/plain": ["b\n", "c"]}},
			{"ename": "E", "evalue": "v"}, {"data": {"text/plain": "Label()", "application/vnd.jupyter.widget-view+json": {"model_id": "n"}}}]},
			"n": {"_": "Label", "value": "nested"}}`: "a\nb\nc\nE: v\nnested",
		`{"w": {"_": "VBox", "children": ["IPY_MODEL_w"]}}`:                    "",                   // within itself
		`{"w": {"_": "IntProgress", "value": "x", "min": null, "max": {}}}`:    "|          | 0/100", // of other types
		`{"w": {"_": "HTML", "value": "` + strings.Repeat("x", 20_000) + `"}}`: "[… 3616 bytes before this are not shown …]\n" + strings.Repeat("x", 16<<10),
	} {
		if got, ok := models(t, state).Text("w"); got != want || !ok {
			t.Errorf("%.300s\nis %.300q, %t, want %.300q", state, got, ok, want)
		}
	}
	for _, unknown := range []string{`{}`, `{"w": {"_": "Figure"}}`} {
		if text, ok := models(t, unknown).Text("w"); ok {
			t.Errorf("%s has the text %q", unknown, text)
		}
	}
}
