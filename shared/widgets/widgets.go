// Package widgets keeps the state of Jupyter widgets, and shows it as text.
//
// A widget lives in the kernel as a model, whose traits comm messages report. A display has only
// the model's id: a reader without a browser sees what the model's state says. The state has the
// form of a notebook's metadata.widgets (Jupyter widget state, version 2). The package must not know
// where messages come from. Whatever a state says, a text is bounded.
//
// Start reading at Models; text.go makes texts.
package widgets

import (
	"bytes"
	"encoding/json"

	"colabrelay/shared/lazy"
)

// MIME types of a notebook's widgets.
const (
	ViewMIME  = "application/vnd.jupyter.widget-view+json"  // of a display
	StateMIME = "application/vnd.jupyter.widget-state+json" // of the notebook's metadata
)

// Model is a widget's model.
type Model struct {
	Name    string `json:"model_name"`
	Module  string `json:"model_module"`
	Version string `json:"model_module_version"`
	// State is the last value of each trait that the kernel has sent.
	State   map[string]json.RawMessage `json:"state"`
	Buffers []Buffer                   `json:"buffers,omitempty"`
}

// Buffer is the binary value of a trait.
type Buffer struct {
	Data     string          `json:"data"`
	Encoding string          `json:"encoding"` // base64
	Path     json.RawMessage `json:"path"`     // in the state: a list of keys and indexes
}

// Models are the models of a kernel, or of a notebook, by their ids.
type Models map[string]*Model

// Document is what a notebook's metadata has under StateMIME.
type Document struct {
	Major int                        `json:"version_major"`
	Minor int                        `json:"version_minor"`
	State map[string]json.RawMessage `json:"state"` // of each model
}

// NewDocument returns the document of these models.
func NewDocument(models map[string]json.RawMessage) Document { return Document{2, 0, models} }

// MaxID bounds a model's id, in bytes. ipywidgets' have 32.
const MaxID = 100

// View returns the model that a display shows; empty if the display is not that of a widget.
func View(data map[string]json.RawMessage) (model string) {
	var view struct {
		ModelID string `json:"model_id"`
	}
	if json.Unmarshal(data[ViewMIME], &view) != nil || len(view.ModelID) > MaxID {
		return ""
	}
	return view.ModelID
}

// reference matches the ids of models in a state: those of parts, and of displays in an Output widget.
var reference = lazy.Regexp(`"IPY_MODEL_([0-9A-Za-z_-]+)"|"model_id":\s*"([0-9A-Za-z_-]+)"`)

// References returns the ids of the models that a text of JSON names, such as a trait or outputs.
func References(text []byte) (ids []string) {
	if !bytes.Contains(text, []byte("IPY_MODEL_")) && !bytes.Contains(text, []byte("model_id")) {
		return nil // a large text is searched for one word fast
	}
	for _, found := range reference().FindAllSubmatch(text, -1) {
		ids = append(ids, string(found[1])+string(found[2]))
	}
	return ids
}

// Reachable returns the ids and all to which they lead, given those that a model names.
func Reachable(ids []string, named func(id string) []string) map[string]bool {
	found := map[string]bool{}
	for len(ids) > 0 {
		id := ids[len(ids)-1]
		if ids = ids[:len(ids)-1]; !found[id] {
			found[id] = true
			ids = append(ids, named(id)...)
		}
	}
	return found
}
