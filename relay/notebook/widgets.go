package notebook

import (
	"bytes"
	"encoding/json"
	"maps"

	"colabrelay/relay/output"
	"colabrelay/shared/widgets"
)

// SetWidgets adds the states of widgets to the notebook's metadata, and removes those that no output
// shows any more, as front ends do when they save. Metadata of another form stays as it is.
func (d *Document) SetWidgets(states map[string]output.JSON) error {
	if d.part(d.metadata) == nil || len(states) == 0 && !bytes.Contains(d.part(d.metadata), []byte(widgets.StateMIME)) {
		return nil
	}
	all, others, err := d.widgets()
	if err != nil {
		return nil
	}
	maps.Copy(all, states)
	var shown []string
	for i := range d.cells {
		shown = append(shown, widgets.References(d.part(d.cells[i].outputs))...)
	}
	reached := widgets.Reachable(shown, func(id string) []string { return widgets.References(all[id]) })
	maps.DeleteFunc(all, func(id string, _ output.JSON) bool { return !reached[id] })
	if len(all) > 0 {
		maps.Copy(others, widgetMetadata(all))
	}
	if len(others) == 0 {
		removed, _ := d.dropping(d.metadata, "widgets")
		return d.apply(removed)
	}
	text, err := d.style.write(nil, others, d.indentOf(d.metadata))
	if err != nil {
		return err
	}
	return d.apply(d.setting(d.metadata, "widgets", text))
}

// widgetMetadata is the value of widgets in a notebook's metadata.
func widgetMetadata(states map[string]output.JSON) map[string]any {
	models := map[string]any{}
	for id, state := range states {
		models[id] = state
	}
	return map[string]any{widgets.StateMIME: map[string]any{"state": models, "version_major": 2, "version_minor": 0}}
}

// WidgetText returns what the widget shows that a display has, given its payload of the type
// widgets.ViewMIME. ok is false if the notebook has no state of such a widget.
func (d *Document) WidgetText(view []byte) (text string, ok bool) {
	id := widgets.View(map[string]json.RawMessage{widgets.ViewMIME: view})
	if id == "" {
		return "", false
	}
	states, _, _ := d.widgets()
	models := widgets.Models{}
	for id, state := range states {
		var m widgets.Model
		if json.Unmarshal(state, &m) == nil {
			models[id] = &m
		}
	}
	return models.Text(id)
}

// widgets returns the states of widgets in the notebook's metadata, and what else is with them. Colab
// writes the states without the object around them.
func (d *Document) widgets() (states map[string]output.JSON, others map[string]any, err error) {
	var metadata struct {
		Widgets map[string]json.RawMessage `json:"widgets"`
	}
	if err = json.Unmarshal(d.part(d.metadata), &metadata); err != nil {
		return nil, nil, err
	}
	states, others = map[string]output.JSON{}, map[string]any{}
	for mime, value := range metadata.Widgets {
		if mime == widgets.StateMIME {
			continue
		}
		if others[mime], err = output.ParseJSON(value); err != nil {
			return nil, nil, err
		}
	}
	var models map[string]json.RawMessage
	if document := metadata.Widgets[widgets.StateMIME]; document != nil {
		err = json.Unmarshal(document, &models)
	}
	if inner, has := models["state"]; err == nil && has {
		models = nil
		err = json.Unmarshal(inner, &models)
	}
	for id, state := range models {
		if states[id], err = output.ParseJSON(state); err != nil {
			return nil, nil, err
		}
	}
	return states, others, err
}
