package page

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

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

var tools = []string{toolAddCode, toolAddText, toolUpdate, toolDelete, toolMove, toolCells, toolRun}

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
	_, refused := errors.AsType[*ToolError](err)
	_, missing := errors.AsType[*MissingToolError](err)
	if !refused && !missing {
		t.runs.forget(id)
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
