// Package comm follows the widgets of one kernel by their comm messages: the state of each model, what
// Output widgets capture, and which displays show which model.
//
// Code in the kernel can send any such message, so everything is bounded. The package must not know
// executions: its user asks which texts and states have changed.
//
// Start reading at Board.
package comm

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"colabrelay/executor/jupyter"
	"colabrelay/shared/bounded"
	"colabrelay/shared/widgets"
)

// Bounds of what is kept of one kernel's widgets.
const (
	maxModels   = 20_000
	maxBytes    = 16 << 20  // of all states; beyond either bound the oldest models are forgotten
	maxModel    = 512 << 10 // of one state, and of one message; a larger state is emptied
	maxCaptured = 256 << 10 // of what an Output widget holds; the rest is output of the run itself
	maxViews    = 100       // displays whose text is kept up to date: the newest
	maxTraits   = 2000      // of one message
	maxItems    = 10_000    // of one array or object of a message: a relay reads no event with many more
	perOutput   = 512       // bytes that a captured output counts besides its content
)

// The texts of views are told at most each viewPause, and more seldom the longer they are and the
// longer it takes to make them.
const (
	viewPause   = time.Second
	viewPerByte = time.Millisecond / 4
	viewShare   = 20
)

// Board has the widgets of one kernel. The zero value is that of a new one. It is not safe for concurrent
// use.
type Board struct {
	models  map[string]*model
	order   []string            // ids, the oldest first
	size    int                 // bytes of all states
	hooks   map[string][]*model // by the id of a request: the Output widgets that capture its output, the innermost last
	views   []*view
	changed bool // a text may have changed since Views was asked last
	asked   time.Time
	pause   time.Duration
}

// model is a widget's model.
type model struct {
	widgets.Model
	size     int
	open     bool
	msgID    string // of the request whose output it captures
	given    []byte // the inside of the list of outputs that the kernel itself has set, before those captured
	captured []*output
	held     int      // bytes of captured
	clear    bool     // before the next output
	fresh    bool     // its state has changed since States was asked last
	refers   []string // the ids of models that its state names; see names
	ahead    bool     // the kernel does not know what was captured
}

// output is one that an Output widget has captured, as nbformat has it.
type output struct {
	Type           string          `json:"output_type"`
	Name           string          `json:"name,omitempty"`
	Text           string          `json:"text,omitempty"`
	Data           json.RawMessage `json:"data,omitempty"`
	Metadata       json.RawMessage `json:"metadata,omitempty"`
	ExecutionCount json.RawMessage `json:"execution_count,omitempty"`
	EName          json.RawMessage `json:"ename,omitempty"`
	EValue         json.RawMessage `json:"evalue,omitempty"`
	Traceback      json.RawMessage `json:"traceback,omitempty"`
	displayID      string
}

// view is a display of a model.
type view struct{ run, displayID, model, text string }

// View is the present text of a display.
type View struct{ DisplayID, Text string }

// Is reports whether a message is about a widget.
func Is(m *jupyter.Message) bool { return strings.HasPrefix(m.Header.MsgType, "comm_") }

// content is that of comm_open, comm_msg and comm_close.
type content struct {
	CommID string `json:"comm_id"`
	Target string `json:"target_name"`
	Data   struct {
		State       map[string]json.RawMessage `json:"state"`
		BufferPaths []json.RawMessage          `json:"buffer_paths"`
	} `json:"data"`
}

// Message takes in a message about a widget.
func (b *Board) Message(m *jupyter.Message) {
	size := len(m.Content)
	for _, buffer := range m.Buffers() {
		size += len(buffer)
	}
	if size > maxModel || bounded.Items(m.Content) > maxItems {
		b.tooLarge(m)
		return
	}
	var c content
	if m.Cut > 0 || m.Decode(&c) != nil || len(c.CommID) > widgets.MaxID || len(c.Data.State) > maxTraits {
		return
	}
	w := b.models[c.CommID]
	switch {
	case m.Header.MsgType == "comm_close":
		if w != nil {
			w.open, b.changed = false, true
			b.capture(w, "")
		}
	case m.Header.MsgType == "comm_open" && c.Target == "jupyter.widget" && w == nil:
		w = &model{Model: widgets.Model{State: map[string]json.RawMessage{}}, open: true}
		if b.models == nil {
			b.models, b.hooks = map[string]*model{}, map[string][]*model{}
		}
		b.models[c.CommID] = w
		b.order = append(b.order, c.CommID)
		fallthrough
	case w != nil && c.Data.State != nil:
		b.update(w, &c, m.Buffers())
		b.shrink()
	}
}

// tooLarge empties the state of a model about which a message is too large: what is known of it is not
// true any more.
func (b *Board) tooLarge(m *jupyter.Message) {
	var c struct {
		CommID string `json:"comm_id"`
	}
	if m.Decode(&c) == nil && b.models[c.CommID] != nil {
		b.forget(b.models[c.CommID])
	}
}

// forget empties a state.
func (b *Board) forget(w *model) {
	b.size -= w.size
	w.State, w.Buffers, w.size = map[string]json.RawMessage{}, nil, 0
	w.fresh, b.changed = true, true
	w.empty()
	b.capture(w, "")
}

// update changes the state of a model.
func (b *Board) update(w *model, c *content, buffers [][]byte) {
	for trait, value := range c.Data.State {
		w.State[trait] = value
	}
	for i, path := range c.Data.BufferPaths[:min(len(c.Data.BufferPaths), len(buffers))] {
		w.Buffers = slices.DeleteFunc(w.Buffers, func(old widgets.Buffer) bool { return string(old.Path) == string(path) })
		w.Buffers = append(w.Buffers, widgets.Buffer{Data: base64.StdEncoding.EncodeToString(buffers[i]), Encoding: "base64", Path: path})
	}
	w.Name, w.Module, w.Version = w.text("_model_name"), w.text("_model_module"), w.text("_model_module_version")
	w.fresh, b.changed = true, true
	if given := bytes.TrimSpace(c.Data.State["outputs"]); w.Name == "OutputModel" && bytes.HasPrefix(given, []byte("[")) {
		w.empty()
		w.given = bytes.TrimSpace(given[1 : len(given)-1])
		w.State["outputs"] = nil // made when it is asked for
	}
	if _, has := c.Data.State["msg_id"]; has && w.Name == "OutputModel" {
		b.capture(w, w.text("msg_id"))
	}
	b.measure(w)
}

// text returns a trait that is a text; empty if it is none.
func (w *model) text(trait string) (text string) {
	_ = json.Unmarshal(w.State[trait], &text)
	return text
}

// measure counts the bytes of a state again. One that is too large is emptied.
func (b *Board) measure(w *model) {
	b.size -= w.size
	w.size = w.held + len(w.given)
	for trait, value := range w.State {
		w.size += len(trait) + len(value) + 64
	}
	for _, buffer := range w.Buffers {
		w.size += len(buffer.Data) + len(buffer.Path)
	}
	if b.size += w.size; w.size > maxModel {
		b.forget(w)
	}
}

// shrink forgets the oldest models beyond the bounds.
func (b *Board) shrink() {
	for len(b.order) > maxModels || b.size > maxBytes {
		oldest := b.order[0]
		b.order = b.order[1:]
		b.capture(b.models[oldest], "")
		b.size -= b.models[oldest].size
		delete(b.models, oldest)
	}
}

// capture lets an Output widget capture what a request outputs; with no request, nothing any more.
func (b *Board) capture(w *model, msgID string) {
	if hooks := b.hooks[w.msgID]; w.msgID != "" {
		if hooks = slices.DeleteFunc(hooks, func(other *model) bool { return other == w }); len(hooks) == 0 {
			delete(b.hooks, w.msgID)
		} else {
			b.hooks[w.msgID] = hooks
		}
	}
	if w.msgID = msgID; msgID != "" {
		b.hooks[msgID] = append(b.hooks[msgID], w)
	}
}

// Capture gives output to the Output widget in whose block its request is, and reports whether there
// is one that has room for it. Otherwise the output is the run's own.
func (b *Board) Capture(m *jupyter.Message) bool {
	hooks := b.hooks[m.ParentHeader.MsgID]
	if len(hooks) == 0 || m.Cut > 0 {
		return false
	}
	w := hooks[len(hooks)-1]
	switch m.Header.MsgType {
	case jupyter.MsgClearOutput:
		var c jupyter.ClearOutput
		_ = m.Decode(&c)
		if w.clear = c.Wait; !c.Wait {
			w.empty()
		}
	case jupyter.MsgStream, jupyter.MsgDisplayData, jupyter.MsgUpdateDisplayData, jupyter.MsgExecuteResult, jupyter.MsgError:
		if w.clear && m.Header.MsgType != jupyter.MsgUpdateDisplayData {
			w.empty()
			w.clear = false
			b.measure(w)
		}
		if more := len(m.Content) + perOutput; w.held+more > maxCaptured || w.size+more > maxModel || !w.add(m) {
			return false
		}
	default:
		return false
	}
	w.State["outputs"] = nil // made when it is asked for
	w.fresh, w.ahead, b.changed = true, true, true
	b.measure(w)
	b.shrink()
	return true
}

// empty removes what an Output widget shows.
func (w *model) empty() { w.given, w.captured, w.held = nil, nil, 0 }

// add adds an output, and reports whether it belongs to the widget.
func (w *model) add(m *jupyter.Message) bool {
	o := &output{Type: m.Header.MsgType}
	var c struct {
		*output
		Transient jupyter.Transient `json:"transient"`
	}
	if c.output = o; json.Unmarshal(m.Content, &c) != nil {
		return false
	}
	o.displayID = c.Transient.DisplayID
	last := len(w.captured) - 1
	switch {
	case o.Type == jupyter.MsgUpdateDisplayData:
		at := slices.IndexFunc(w.captured, func(old *output) bool { return o.displayID != "" && old.displayID == o.displayID })
		if at < 0 {
			return false
		}
		w.captured[at].Data, w.captured[at].Metadata = o.Data, o.Metadata
	case o.Type == jupyter.MsgStream && last >= 0 && w.captured[last].Type == o.Type && w.captured[last].Name == o.Name:
		w.captured[last].Text += o.Text
		w.held -= perOutput
	default:
		w.captured = append(w.captured, o)
	}
	w.held += len(m.Content) + perOutput
	return true
}

// state returns a model as metadata.widgets has it.
func (w *model) state() *widgets.Model {
	if outputs, has := w.State["outputs"]; has && outputs == nil {
		var list [][]byte
		if len(w.given) > 0 {
			list = append(list, w.given)
		}
		for _, o := range w.captured {
			text, _ := json.Marshal(o) // which was read from JSON
			list = append(list, text)
		}
		w.State["outputs"] = slices.Concat([]byte{'['}, bytes.Join(list, []byte{','}), []byte{']'})
	}
	return &w.Model
}

// Update is the content of a comm_msg that tells the kernel what an Output widget has captured, as front
// ends do: code that adds to its outputs adds to these.
type Update struct {
	CommID string     `json:"comm_id"`
	Data   updateData `json:"data"`
}

type updateData struct {
	Method      string                     `json:"method"`
	State       map[string]json.RawMessage `json:"state"`
	BufferPaths []any                      `json:"buffer_paths"`
}

// Updates returns what the kernel is to be told when it has run a request.
func (b *Board) Updates() (all []Update) {
	for id, w := range b.models {
		if w.ahead && w.open {
			state := map[string]json.RawMessage{"outputs": w.state().State["outputs"]}
			all = append(all, Update{id, updateData{"update", state, []any{}}})
		}
		w.ahead = false
	}
	return all
}

// Show notes that a display of a run shows a model, and returns the display's id. A display without an
// id has the one of all views of its model. With an empty model, the display shows something else now.
func (b *Board) Show(run, displayID, modelID string) string {
	if displayID == "" && modelID != "" {
		displayID = "widget:" + modelID
	}
	b.views = slices.DeleteFunc(b.views, func(v *view) bool { return v.displayID == displayID })
	if modelID != "" {
		b.views = append(b.views[max(0, len(b.views)+1-maxViews):], &view{run, displayID, modelID, unknown})
		b.changed = true
	}
	return displayID
}

// Clear notes that what a run has displayed is not shown any more.
func (b *Board) Clear(run string) {
	b.views = slices.DeleteFunc(b.views, func(v *view) bool { return v.run == run })
}

// unknown is the text of a view that was not told yet.
const unknown = "\x00"

// Due is when Views should be asked. ok is false if no text can have changed.
func (b *Board) Due() (at time.Time, ok bool) {
	return b.asked.Add(b.pause), b.changed && len(b.views) > 0
}

// Views returns the displays whose text has changed since it was asked last.
func (b *Board) Views(now time.Time) (changed []View) {
	if !b.changed {
		return nil
	}
	began := time.Now()
	b.changed, b.asked, b.pause = false, now, viewPause
	var models widgets.Models
	for _, v := range b.views {
		if models == nil {
			models = b.all()
		}
		text, ok := models.Text(v.model)
		if w := b.models[v.model]; w == nil {
			continue // its last text stays
		} else if !w.open {
			text, ok = "", true
		}
		if ok && text != v.text {
			v.text = text
			b.pause += time.Duration(len(text)) * viewPerByte
			changed = append(changed, View{v.displayID, text})
		}
	}
	b.pause += viewShare * time.Since(began)
	return changed
}

func (b *Board) all() widgets.Models {
	all := make(widgets.Models, len(b.models))
	for id, w := range b.models {
		if w.open {
			all[id] = w.state()
		}
	}
	return all
}

// States returns the states that have changed since it was asked last, of models that a display
// shows or that one of those refers to, as JSON.
func (b *Board) States() map[string]json.RawMessage {
	var roots []string
	for _, v := range b.views {
		roots = append(roots, v.model)
	}
	states := map[string]json.RawMessage{}
	reached := widgets.Reachable(roots, func(id string) []string {
		if w := b.models[id]; w != nil {
			return w.names()
		}
		return nil
	})
	for id := range reached {
		w := b.models[id]
		if w == nil || !w.fresh {
			continue
		}
		w.fresh = false
		if text, err := json.Marshal(w.state()); err == nil {
			states[id] = text
		}
	}
	return states
}

// names returns the ids of the models to which the model refers.
func (w *model) names() []string {
	if w.fresh {
		w.refers = nil
		for _, value := range w.state().State {
			w.refers = append(w.refers, widgets.References(value)...)
		}
	}
	return w.refers
}
