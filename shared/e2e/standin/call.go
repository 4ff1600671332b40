package standin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"colabrelay/executor/jupyter"
)

// arguments are those of all seven tools.
type arguments struct {
	ID       string  `json:"cellId"`
	Index    *int    `json:"cellIndex"`
	Language *string `json:"language"`
	Code     *string `json:"code"`
	Content  *string `json:"content"`
	Start    *int    `json:"cellIndexStart"`
	End      *int    `json:"cellIndexEnd"`
	Outputs  bool    `json:"includeOutputs"`
}

// call answers tools/call. A result is JSON inside a text; there is no structuredContent.
func (t *Tab) call(params json.RawMessage) any {
	var asked struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	if err := json.Unmarshal(params, &asked); err != nil {
		return failure(err)
	}
	if t.options.Answer != nil {
		if text, answered := t.options.Answer(asked.Name, asked.Arguments); answered {
			return answerText(text)
		}
	}
	var args arguments
	if err := json.Unmarshal(asked.Arguments, &args); err != nil {
		return failure(err)
	}
	result, err := t.perform(asked.Name, args)
	if err != nil {
		return failure(err)
	}
	text, err := json.Marshal(result)
	if err != nil {
		return failure(err)
	}
	return answerText(string(text))
}

func answerText(text string) map[string]any {
	return map[string]any{"content": []any{map[string]any{"type": "text", "text": text}}}
}

// failure is a tool's answer that says what went wrong. How the page words it is not known.
func failure(err error) map[string]any {
	result := answerText("Error: " + err.Error())
	result["isError"] = true
	return result
}

var errArguments = errors.New("a required argument is missing")

func (t *Tab) perform(tool string, a arguments) (any, error) {
	nothing := map[string]any{}
	switch tool {
	case "get_cells":
		return map[string]any{"cells": t.cells(a)}, nil
	case "add_code_cell":
		if a.Index == nil || a.Code == nil || a.Language == nil || !slices.Contains([]string{"python", "r", "julia"}, *a.Language) {
			return nil, errArguments
		}
		return t.add(*a.Index, NewCell("code", *a.Code))
	case "add_text_cell":
		if a.Index == nil || a.Content == nil {
			return nil, errArguments
		}
		return t.add(*a.Index, NewCell("markdown", *a.Content))
	case "update_cell":
		if a.Content == nil {
			return nil, errArguments
		}
		return nothing, t.Notebook.edit(a.ID, func(at int) { t.Notebook.cells[at].Source = lines(*a.Content) })
	case "delete_cell":
		return nothing, t.Notebook.edit(a.ID, func(at int) { t.Notebook.cells = slices.Delete(t.Notebook.cells, at, at+1) })
	case "move_cell":
		if a.Index == nil {
			return nil, errArguments
		}
		return nothing, t.move(a.ID, *a.Index)
	case "run_code_cell":
		return t.run(a.ID)
	}
	return nil, fmt.Errorf("unknown tool %q", tool)
}

func (t *Tab) cells(a arguments) []Cell {
	cells := t.Notebook.Cells()
	from, to := 0, len(cells)
	if a.Start != nil {
		from = min(max(*a.Start, 0), to)
	}
	if a.End != nil {
		to = min(max(*a.End+1, from), to) // users ask for one cell with two equal numbers
	}
	cells = cells[from:to]
	if !a.Outputs {
		for i := range cells {
			cells[i].Outputs = nil
		}
	}
	return cells
}

func (t *Tab) add(at int, cell Cell) (any, error) {
	if err := t.Notebook.insert(at, cell); err != nil {
		return nil, err
	}
	return map[string]any{"newCellId": cell.ID}, nil
}

func (t *Tab) move(id string, to int) error {
	n := t.Notebook
	var beyond error
	err := n.edit(id, func(at int) {
		if to < 0 || to >= len(n.cells) {
			beyond = fmt.Errorf("cellIndex %d is out of range", to)
			return
		}
		cell := n.cells[at]
		n.cells = slices.Insert(slices.Delete(n.cells, at, at+1), to, cell)
	})
	return errors.Join(err, beyond)
}

// run runs a cell and waits for its end, or as long as the page waits.
func (t *Tab) run(id string) (any, error) {
	switch {
	case t.options.NoVM != "":
		return nil, errors.New(t.options.NoVM)
	case t.options.Execute == nil:
		return nil, errors.New("the notebook is not connected to a runtime")
	case t.options.RunAnyway != nil:
		select {
		case <-t.options.RunAnyway:
		default:
			return map[string]any{"outputs": []any{}}, nil
		}
	}
	ended := make(chan error, 1)
	var outputs []map[string]any
	t.group.Go(func() {
		var err error
		outputs, err = t.execute(id)
		ended <- err
	})
	var late <-chan time.Time
	if t.options.CallTimeout > 0 {
		timer := time.NewTimer(t.options.CallTimeout)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case err := <-ended:
		return map[string]any{"outputs": outputs}, err
	case <-late:
		return nil, fmt.Errorf("timed out after %v", t.options.CallTimeout) // the cell runs on
	}
}

// execute runs a cell in the kernel after those that wait for it already.
func (t *Tab) execute(id string) ([]map[string]any, error) {
	select {
	case t.Notebook.kernel <- struct{}{}:
		defer func() { <-t.Notebook.kernel }()
	case <-t.ctx.Done():
		return nil, t.ctx.Err()
	}
	var source string
	err := t.Notebook.edit(id, func(at int) {
		cell := &t.Notebook.cells[at]
		source, cell.Outputs, cell.Count = strings.Join(cell.Source, ""), nil, nil
	})
	if err != nil {
		return nil, err
	}
	outputs, count := t.options.Execute(t.ctx, source)
	if outputs == nil {
		outputs = []map[string]any{}
	}
	// A cell that was deleted meanwhile shows nothing, but its call is answered.
	_ = t.Notebook.edit(id, func(at int) { t.Notebook.cells[at].Outputs, t.Notebook.cells[at].Count = outputs, &count })
	return outputs, nil
}

// Fake returns an Execute without a kernel: it runs f for each cell and counts.
func Fake(f func(ctx context.Context, code string) []map[string]any) func(context.Context, string) ([]map[string]any, int) {
	count := 0
	return func(ctx context.Context, code string) ([]map[string]any, int) {
		count++ // one cell runs at a time
		return f(ctx, code), count
	}
}

// Stream is an output that was printed on stdout.
func Stream(text string) map[string]any {
	return map[string]any{"output_type": "stream", "name": "stdout", "text": lines(text)}
}

// collected is what a cell's code has sent, as a notebook keeps it.
type collected struct {
	outputs       []map[string]any
	count         int
	replied, idle bool
	clear         bool // clear_output(wait=True): before the next output
}

func (c *collected) message(kind string, content map[string]any) {
	switch kind {
	case jupyter.MsgExecuteReply:
		c.replied = true
		if n, ok := content["execution_count"].(float64); ok {
			c.count = int(n)
		}
	case jupyter.MsgStatus:
		c.idle = content["execution_state"] == "idle"
	case jupyter.MsgClearOutput:
		if c.clear = content["wait"] == true; !c.clear {
			c.outputs = nil
		}
	case jupyter.MsgStream:
		text, _ := content["text"].(string)
		c.stream(content["name"], text)
	case jupyter.MsgDisplayData, jupyter.MsgExecuteResult, jupyter.MsgError:
		delete(content, "transient")
		content["output_type"] = kind
		c.add(content)
	}
}

// stream appends to the last output if that is of the same stream.
func (c *collected) stream(name any, text string) {
	if n := len(c.outputs); !c.clear && n > 0 && c.outputs[n-1]["output_type"] == "stream" && c.outputs[n-1]["name"] == name {
		c.outputs[n-1]["text"] = lines(strings.Join(c.outputs[n-1]["text"].([]string), "") + text)
		return
	}
	c.add(map[string]any{"output_type": "stream", "name": name, "text": lines(text)})
}

func (c *collected) add(output map[string]any) {
	if c.clear {
		c.outputs, c.clear = nil, false
	}
	c.outputs = append(c.outputs, output)
}

// record is what a Tab saw and sent.
type record struct {
	mu    sync.Mutex
	lines strings.Builder
}

func (r *record) add(what, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines.WriteString(what + ": " + text + "\n")
}

func (r *record) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lines.String()
}
