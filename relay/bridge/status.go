package bridge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	bootstrap "colabrelay/colab-bootstrap"
	"colabrelay/relay/page"
)

// statusWait is how long the page may take to refuse to run the status cell.
const statusWait = 3 * time.Second

// started is the executor that this Bridge started last.
type started struct {
	instance   string
	job        string
	statusCell string // id; empty if there is none
}

// What is said of the status cell.
const (
	noteOffer  = "No cell of the page runs, so Colab may count the page as idle and end the VM. To prevent that, call again with status_cell (or use --status-cell): it leaves a visible cell that runs as long as the executor; stopping it stops the executor. While it runs, the notebook's own cells wait, so run code on the executor then."
	noteStatus = "A cell at the end of the notebook now runs as long as the executor, so that Colab does not count the page as idle; stopping it stops the executor. While it runs, the notebook's own cells wait: run code on the executor."
	noteFailed = "The status cell could not be added, so Colab may count the page as idle and end the VM: "
)

// statusNote adds the status cell if the caller wants one, and returns a sentence about it.
func (b *Bridge) statusNote(ctx context.Context, j *job) string {
	if !j.request.StatusCell {
		return noteOffer
	}
	id, err := addStatusCell(ctx, j.nb, b.last.job)
	b.last.statusCell = id
	if err != nil {
		return noteFailed + err.Error() + "."
	}
	return noteStatus
}

// addStatusCell inserts the cell and runs it without waiting for its end.
func addStatusCell(ctx context.Context, nb Notebook, job string) (id string, err error) {
	source, err := bootstrap.StatusCell(job)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, editLimit, fmt.Errorf("%w: it did not insert one within %.0f s", ErrPage, editLimit.Seconds()))
	defer cancel()
	cells, err := nb.Cells(ctx, 0, -1, false)
	if err != nil {
		return "", pageError(ctx, err)
	}
	if id, err = nb.AddCode(ctx, len(cells), "python", source); err != nil {
		return "", pageError(ctx, err)
	}
	running, stop := context.WithTimeout(ctx, statusWait)
	defer stop()
	if _, err = nb.Run(running, id); running.Err() != nil || errors.Is(err, page.ErrRunning) {
		return id, nil
	}
	if err == nil {
		err = errors.New("it ended at once")
	}
	_ = nb.Delete(ctx, id)
	return "", pageError(ctx, err)
}

// besideStatusCell returns the outcome of a bridge while the status cell of its executor runs:
// no other cell could run before its end.
func (b *Bridge) besideStatusCell(ctx context.Context, j *job, l *look) (paired Paired, found bool) {
	if b.last.statusCell == "" {
		return paired, false
	}
	for _, e := range l.result() {
		if e.instance == b.last.instance && b.hasCell(ctx, j.nb, b.last.statusCell) {
			return Paired{Runtime: e.runtime, Already: true, Notes: []string{noteStatus}}.withDefault(b), true
		}
	}
	b.last.statusCell = ""
	return paired, false
}

func (b *Bridge) hasCell(ctx context.Context, nb Notebook, id string) bool {
	ctx, cancel := context.WithTimeout(ctx, editLimit)
	defer cancel()
	cells, err := nb.Cells(ctx, 0, -1, false)
	return err == nil && slices.ContainsFunc(cells, func(c page.Cell) bool { return c.ID == id })
}
