package bridge

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	bootstrap "colabrelay/colab-bootstrap"
	"colabrelay/relay/output"
	"colabrelay/relay/page"
	"colabrelay/relay/plain"
	"colabrelay/shared/keep"
)

// Limits of what a tab is given time for. A tab that never answers must not hold a bridge.
const (
	editLimit   = 20 * time.Second // one edit of the notebook
	removeLimit = 15 * time.Second // the removal of the cell, after everything else
	runPause    = 2 * time.Second  // between two runs of a cell that the page did not run
	maxCellID   = 256              // bytes
	maxSwept    = 20               // cells of earlier bridges that one bridge removes
)

// mark begins the last line of each cell that is removed again. By it a later bridge finds the
// cell of one that was killed, or whose tab was lost.
const mark = "\n# colab-relay: this cell is temporary and is removed automatically, unless it is edited: "

// marked adds that line, which ends in a digest of the source.
func marked(source string) string {
	digest := sha256.Sum256([]byte(source))
	return source + mark + hex.EncodeToString(digest[:8]) + "\n"
}

// temporary reports whether a bridge wrote the cell and nobody changed it: a person may have
// typed into it, or copied its last line.
func temporary(c page.Cell) bool {
	text := strings.TrimRight(c.Source, "\n")
	at := strings.LastIndex(text, mark)
	return c.Type == "code" && at >= 0 && text == strings.TrimRight(marked(text[:at]), "\n")
}

// cell is the one cell that a bridge uses for everything that it runs.
type cell struct {
	nb Notebook
	id string // empty if it is not known whether the cell was inserted
}

// insert removes the cells that earlier bridges left, and inserts one at the end.
func (c *cell) insert(ctx context.Context, source string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, editLimit, fmt.Errorf("%w: it did not insert one within %.0f s", ErrPage, editLimit.Seconds()))
	defer cancel()
	cells, err := c.nb.Cells(ctx, 0, -1, false)
	if err != nil {
		return pageError(ctx, err)
	}
	end, swept := len(cells), 0
	for _, old := range cells {
		if temporary(old) && swept < maxSwept {
			swept++
			if c.nb.Delete(ctx, old.ID) == nil {
				end--
			}
		}
	}
	id, err := c.nb.AddCode(ctx, end, "python", marked(source))
	if err == nil && (id == "" || len(id) > maxCellID) {
		err = fmt.Errorf("the new cell has an id of %d bytes", len(id))
	}
	if err != nil {
		return pageError(ctx, err)
	}
	c.id = id
	return nil
}

// change replaces the cell's source.
func (c *cell) change(ctx context.Context, source string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, editLimit, fmt.Errorf("%w: it did not change one within %.0f s", ErrPage, editLimit.Seconds()))
	defer cancel()
	return pageError(ctx, c.nb.Update(ctx, c.id, marked(source)))
}

// outputs runs the cell until the page shows outputs that answered accepts, or ctx ends. The
// page answers without outputs while it waits for a click, and may show those of the source
// before; running the cell again is harmless for every source here. Outputs that answered
// does not know end the wait with what the cell printed.
func (c *cell) outputs(ctx context.Context, answered func(output string) (bool, error)) error {
	return keep.Repeat(ctx, runPause, func() (bool, error) {
		result, err := c.nb.Run(ctx, c.id)
		switch {
		case ctx.Err() != nil:
			return false, context.Cause(ctx)
		case errors.Is(err, page.ErrRunning):
			return false, nil
		case err != nil:
			return false, pageError(ctx, err)
		}
		output, err := outputText(result.Outputs)
		if err != nil {
			return false, err
		}
		return answered(output)
	})
}

// report runs the cell until it reports on the job what wanted accepts. It also returns all that the
// cell printed.
func (c *cell) report(ctx context.Context, job string, wanted func(bootstrap.Report) bool) (got bootstrap.Report, output string, err error) {
	err = c.outputs(ctx, func(text string) (bool, error) {
		output = text
		if got, err = bootstrap.ReadEnrollment(job, output); err == nil {
			return wanted(got), nil
		}
		if said, ok := errors.AsType[*bootstrap.CellError](err); ok {
			return false, fmt.Errorf("%w: %s", ErrCell, shown(said.Sentence))
		}
		if strings.TrimSpace(output) == "" {
			return false, nil
		}
		return false, fmt.Errorf("%w: its cell printed %q", ErrCell, shown(output))
	})
	return got, output, err
}

// remove removes the cell, also after ctx of the bridge has ended. If it is not certain that
// the cell is gone, it returns a sentence that says so.
func (c *cell) remove() (left string) {
	ctx, cancel := context.WithTimeout(context.Background(), removeLimit)
	defer cancel()
	if c.id != "" && c.nb.Delete(ctx, c.id) == nil {
		return ""
	}
	cells, err := c.nb.Cells(ctx, 0, -1, false)
	gone := err == nil
	for _, each := range cells {
		if c.id != "" && each.ID == c.id || temporary(each) {
			gone = c.nb.Delete(ctx, each.ID) == nil && gone
		}
	}
	switch {
	case gone:
		return ""
	case c.id == "":
		return "a cell whose title begins with \"colab-relay:\" may be left in the notebook; the next call removes it, or delete it there"
	}
	return fmt.Sprintf("the cell %q whose title begins with \"colab-relay:\" could not be removed; the next call removes it, or delete it in the notebook", shown(c.id))
}

// pageError describes an error of a call of the tab.
func pageError(ctx context.Context, err error) error {
	var refused *page.ToolError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		return fmt.Errorf("%w: %s says %q", ErrPage, refused.Tool, shown(refused.Text))
	case ctx.Err() != nil && !errors.Is(err, page.ErrTabLost):
		return context.Cause(ctx)
	case errors.Is(err, page.ErrTabLost):
		return err
	}
	return fmt.Errorf("%w: %s", ErrPage, shown(err.Error()))
}

// Bounds of what is read of a tab. Beyond them a bridge ends.
const (
	maxOutputBytes = 1 << 20 // of a cell's outputs; ours print less than 10 KiB
	maxShownRunes  = 500     // of a text of the page in an error
)

// shownOutput is what is used of an nbformat output.
type shownOutput struct {
	Type   string          `json:"output_type"`
	Text   json.RawMessage `json:"text"`
	EName  string          `json:"ename"`
	EValue string          `json:"evalue"`
}

// outputText returns what a cell printed and its exception. It fails for outputs that no cell
// of a bridge produces: too many bytes, or not nbformat's form.
func outputText(outputs json.RawMessage) (string, error) {
	if len(outputs) > maxOutputBytes {
		return "", fmt.Errorf("%w: the page showed %d bytes of outputs for its cell, more than %d", ErrCell, len(outputs), maxOutputBytes)
	}
	if len(outputs) == 0 {
		return "", nil
	}
	var list []shownOutput
	if err := json.Unmarshal(outputs, &list); err != nil {
		return "", fmt.Errorf("%w: the page showed outputs for its cell that are not in nbformat's form", ErrCell)
	}
	var text strings.Builder
	for _, o := range list {
		switch o.Type {
		case "stream":
			text.WriteString(output.Text(o.Text))
		case "error":
			fmt.Fprintf(&text, "\n%s: %s\n", o.EName, o.EValue)
		}
	}
	return text.String(), nil
}

// shown returns a text of the page or of a cell for an error: one line, bounded, safe.
func shown(text string) string { return plain.Clip(strings.TrimSpace(text), maxShownRunes) }
