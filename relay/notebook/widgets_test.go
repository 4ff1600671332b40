package notebook

import (
	"strings"
	"testing"

	"colabrelay/relay/output"
)

// The states of widgets that outputs show are in the metadata, with those to which they lead; all else
// in the file keeps its bytes.
func TestStatesOfWidgetsThatNobodyShowsGo(t *testing.T) {
	const before = `{
 "cells": [{"cell_type": "code", "execution_count": 1, "metadata": {}, "source": [],
   "outputs": [{"data": {"application/vnd.jupyter.widget-view+json": {"model_id": "a"}}, "metadata": {}, "output_type": "display_data"}]}],
 "metadata": {"z":  1, "widgets": {"application/vnd.jupyter.widget-state+json": {"state": {"old": {"state": {}}, "kept": {"state": {"value": 1.50}}}}}},
 "nbformat": 4, "nbformat_minor": 4
}`
	d, err := Parse([]byte(before))
	if err != nil {
		t.Fatal(err)
	}
	shown := output.JSON(`{"model_name":"HBoxModel","state":{"children":["IPY_MODEL_kept"]}}`)
	if err := d.SetWidgets(map[string]output.JSON{"a": shown, "b": shown}); err != nil {
		t.Fatal(err)
	}
	if got, _, _ := d.widgets(); len(got) != 2 || string(got["a"]) != string(shown) || string(got["kept"]) != `{"state":{"value":1.50}}` {
		t.Errorf("the notebook has the states %s", got)
	}
	if d.Strip(); !strings.HasSuffix(string(d.Bytes()), "\"metadata\": {\"z\":  1},\n \"nbformat\": 4, \"nbformat_minor\": 4\n}") {
		t.Errorf("without outputs, the notebook is %s", d.Bytes())
	}
}

// Colab writes the states without an object around them; other entries stay.
func TestStatesAsColabWritesThemStay(t *testing.T) {
	d, err := Parse([]byte(`{"cells": [{"cell_type": "code", "execution_count": 1, "metadata": {}, "source": [], "outputs":
  [{"data": {"application/vnd.jupyter.widget-view+json": {"model_id": "a"}}, "metadata": {}, "output_type": "display_data"}]}],
 "metadata": {"widgets": {"other": {"x": 1}, "application/vnd.jupyter.widget-state+json": {"a": {"model_name": "LabelModel", "state": {"value": "seen"}}}}}, "nbformat": 4, "nbformat_minor": 4}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.SetWidgets(map[string]output.JSON{"b": output.JSON("{}")}); err != nil {
		t.Fatal(err)
	}
	text, ok := d.WidgetText([]byte(`{"model_id": "a"}`))
	if _, others, _ := d.widgets(); text != "seen" || !ok || others["other"] == nil {
		t.Errorf("the widget shows %q, and the metadata has also %v", text, others)
	}
}
