package page

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"colabrelay/relay/plain"
	"colabrelay/shared/bounded"
)

// Bounds of what a tab answers to a call, besides those of its message. Beyond one the call
// fails with errAnswer.
const (
	maxCells   = 10_000  // cells of a notebook
	maxLines   = 200_000 // lines of a cell's source
	maxOutputs = 100_000 // outputs of a cell
	maxCellID  = 200     // bytes of a cell's id
	// maxError bounds the text of an error, in bytes.
	maxError = 4 << 10
)

var errAnswer = errors.New("the answer of Colab's page can't be read, or is beyond a limit")

// toolResult is the result of tools/call. Colab's page puts JSON into the text.
type toolResult struct {
	Content []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"content"`
	IsError bool `json:"isError"`
}

// call calls a tool of the page and decodes the JSON object of its answer into result. An
// answer without text leaves result as it is.
func (t *Tab) call(ctx context.Context, tool string, arguments map[string]any, result any) error {
	err := t.wire.request(ctx, "tools/call", map[string]any{"name": tool, "arguments": arguments}, func(m *message) error {
		if m.Error != nil {
			return newToolError(tool, m.Error.Code, m.Error.Message)
		}
		return decodeAnswer(tool, m.Result, result)
	})
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("waiting for the answer of Colab's page to %s: %w; it may still do this: read the cells before you repeat it", tool, err)
	}
	return err
}

func newToolError(tool string, code int, text string) *ToolError {
	if len(text) > maxError {
		text = text[:maxError] + "…"
	}
	return &ToolError{Tool: tool, Code: code, Text: plain.Text(text)}
}

func decodeAnswer(tool string, raw json.RawMessage, result any) error {
	var r toolResult
	if err := json.Unmarshal(raw, &r); err != nil {
		return fmt.Errorf("%w: %s: %w", errAnswer, tool, err)
	}
	var text string
	for _, c := range r.Content {
		if c.Type == "text" {
			text = strings.TrimSpace(c.Text)
			break
		}
	}
	switch {
	case r.IsError:
		return newToolError(tool, 0, text)
	case text == "":
		return nil
	case text[0] != '{': // the page's own words, such as that there is no such cell
		return newToolError(tool, 0, text)
	}
	if bounded.Depth([]byte(text)) > maxDepth {
		return fmt.Errorf("%w: %s: values are nested more than %d deep", errAnswer, tool, maxDepth)
	}
	if err := json.Unmarshal([]byte(text), result); err != nil {
		return fmt.Errorf("%w: %s: %w", errAnswer, tool, err)
	}
	return nil
}

// cellList are cells in an answer.
type cellList []Cell

func (l *cellList) UnmarshalJSON(data []byte) error {
	if n := elements(data); n > maxCells {
		return fmt.Errorf("the notebook has up to %d cells, over %d", n, maxCells)
	}
	var raw []struct {
		Type    string      `json:"cell_type"`
		ID      string      `json:"id"`
		Source  source      `json:"source"`
		Count   *int        `json:"execution_count"`
		Outputs *outputList `json:"outputs"`
	}
	if err := json.Unmarshal(data, &raw); err != nil {
		return err
	}
	for _, c := range raw {
		if c.ID == "" || len(c.ID) > maxCellID {
			return fmt.Errorf("a cell's id has %d bytes, not 1 to %d", len(c.ID), maxCellID)
		}
		cell := Cell{ID: c.ID, Type: c.Type, Source: string(c.Source), ExecutionCount: c.Count}
		if c.Outputs != nil {
			cell.Outputs = json.RawMessage(*c.Outputs)
		}
		*l = append(*l, cell)
	}
	return nil
}

// source is a cell's text: a string, or a list of lines that keep their line ends.
type source string

func (s *source) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		return json.Unmarshal(data, (*string)(s))
	}
	if n := elements(data); n > maxLines {
		return fmt.Errorf("a cell has up to %d lines, over %d", n, maxLines)
	}
	var lines []string
	if err := json.Unmarshal(data, &lines); err != nil {
		return err
	}
	*s = source(strings.Join(lines, ""))
	return nil
}

// outputList is a list of outputs, as it came.
type outputList json.RawMessage

func (o *outputList) UnmarshalJSON(data []byte) error {
	if len(data) == 0 || data[0] != '[' {
		return errors.New("the outputs of a cell are no list")
	}
	if n := elements(data); n > maxOutputs {
		return fmt.Errorf("a cell has up to %d outputs, over %d", n, maxOutputs)
	}
	*o = append(outputList{}, data...)
	return nil
}

// The tools of Colab's page.
const (
	toolAddCode = "add_code_cell"
	toolAddText = "add_text_cell"
	toolUpdate  = "update_cell"
	toolDelete  = "delete_cell"
	toolMove    = "move_cell"
	toolCells   = "get_cells"
	toolRun     = "run_code_cell"
)

// maxText bounds the text of a cell that is sent to the page, in bytes.
const maxText = 16 << 20

// Cell is a cell of the notebook in the tab. Its texts are the tab's: bounded by the tab's
// message of 64 MiB, and not made safe to show.
type Cell struct {
	ID             string
	Type           string // "code" or "markdown"; Colab may have others
	Source         string
	ExecutionCount *int            // nil: never run, or running
	Outputs        json.RawMessage // a list of nbformat outputs, valid JSON nested up to 100 deep; nil if there is none
}

// Cells returns the cells from index from to index to, both included and counted from 0;
// to < 0 means to the end. outputs asks for the outputs too.
func (t *Tab) Cells(ctx context.Context, from, to int, outputs bool) ([]Cell, error) {
	arguments := map[string]any{"includeOutputs": outputs}
	if from > 0 || to >= 0 {
		arguments["cellIndexStart"] = max(from, 0)
	}
	if to >= 0 {
		arguments["cellIndexEnd"] = to
	}
	var result struct {
		Cells *cellList `json:"cells"`
	}
	if err := t.call(ctx, toolCells, arguments, &result); err != nil {
		return nil, err
	}
	if result.Cells == nil {
		return nil, fmt.Errorf("%w: %s: there is no list of cells", errAnswer, toolCells)
	}
	return *result.Cells, nil
}

// AddCode inserts a code cell before the cell with this index, counted from 0, and returns
// the new cell's id. language is "python", "r" or "julia".
func (t *Tab) AddCode(ctx context.Context, index int, language, code string) (string, error) {
	return t.add(ctx, toolAddCode, map[string]any{"cellIndex": index, "language": language, "code": code}, code)
}

// AddText inserts a text cell before the cell with this index and returns the new cell's id.
func (t *Tab) AddText(ctx context.Context, index int, content string) (string, error) {
	return t.add(ctx, toolAddText, map[string]any{"cellIndex": index, "content": content}, content)
}

func (t *Tab) add(ctx context.Context, tool string, arguments map[string]any, text string) (string, error) {
	if err := checkText(text); err != nil {
		return "", err
	}
	var result struct {
		ID string `json:"newCellId"`
	}
	if err := t.call(ctx, tool, arguments, &result); err != nil {
		return "", err
	}
	if result.ID == "" || len(result.ID) > maxCellID {
		return "", fmt.Errorf("%w: %s: there is no id of a cell; the cell may exist: read the cells", errAnswer, tool)
	}
	return result.ID, nil
}

// Update replaces the text of a cell. A run of the earlier text is not joined afterwards,
// unless the page refused the new text.
func (t *Tab) Update(ctx context.Context, id, content string) error {
	if err := checkText(content); err != nil {
		return err
	}
	return t.change(ctx, toolUpdate, map[string]any{"cellId": id, "content": content}, id)
}

// Delete removes a cell.
func (t *Tab) Delete(ctx context.Context, id string) error {
	return t.change(ctx, toolDelete, map[string]any{"cellId": id}, id)
}

// change does what makes a further run of a cell another run. If the page refused it, the
// cell is as it was: to run it again then would do the same twice.
func (t *Tab) change(ctx context.Context, tool string, arguments map[string]any, id string) error {
	err := t.call(ctx, tool, arguments, &struct{}{})
	if _, refused := errors.AsType[*ToolError](err); !refused {
		t.runs.Forget(id)
	}
	return err
}

// Move moves a cell to an index.
func (t *Tab) Move(ctx context.Context, id string, index int) error {
	return t.call(ctx, toolMove, map[string]any{"cellId": id, "cellIndex": index}, &struct{}{})
}

func checkText(text string) error {
	if len(text) > maxText {
		return fmt.Errorf("the cell's text has %d bytes, more than %d MiB: put data into files", len(text), maxText>>20)
	}
	return nil
}
