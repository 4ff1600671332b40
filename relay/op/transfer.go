package op

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"colabrelay/relay/hint"
	"colabrelay/relay/plain"
	"colabrelay/relay/progress"
	"colabrelay/relay/transfer"
)

const (
	moveDone      = "done"
	moveUnchanged = "unchanged" // an identical target exists
	movePartial   = "partial"   // the call's time is over; the same call continues
	moveFailed    = "failed"
)

// Moved is the common part of the answers of download_from_colab and upload_to_colab.
type Moved struct {
	Status           string   `json:"status"`            // done; unchanged: the same file exists already; partial: the call's time was over, call again with the same arguments; failed
	SizeBytes        int64    `json:"size_bytes"`        // size of the file, or of all files of a folder
	SHA256           string   `json:"sha256"`            // SHA-256 of the complete file, compared on both sides; empty for a folder, whose files are compared one by one
	ResumedFrom      int64    `json:"resumed_from"`      // bytes that earlier calls transferred
	TransferredBytes int64    `json:"transferred_bytes"` // bytes that this call transferred
	Files            int      `json:"files"`
	Skipped          int      `json:"skipped"`                // number of files that existed already
	CanContinue      bool     `json:"can_continue"`           // the same call resumes where this one stopped
	NextCommand      string   `json:"next_command,omitempty"` // that call
	Notes            []string `json:"notes,omitempty"`        // what was skipped or failed, and why; which files have a different name at the destination

	done   int64 // bytes of SizeBytes that all calls have transferred
	folder bool
	took   time.Duration
}

// errHold ends a transfer whose call must answer.
var errHold = errors.New("the call's time is over")

// move transfers what name names. A tool's transfer that is not done when its call must answer has not
// failed: what was transferred is kept, and the same call resumes it. A person waits, and sees the
// progress.
func (c *call) move(ctx context.Context, name string, overwrite bool, run func(context.Context, transfer.Options) (transfer.Result, error)) (transfer.Result, Moved, error) {
	o := transfer.Options{Overwrite: overwrite, RecordDir: c.cfg.TransferDir, ResumeDir: transfer.ResumeDir(c.cfg.CheckpointDir)}
	held, cancel := context.WithCancel(ctx)
	defer cancel()
	var r transfer.Result
	var err error
	if c.person != nil {
		r, err = c.person.Transfer(name, func(report func(transfer.Progress)) (transfer.Result, error) {
			o.Report = report
			return run(ctx, o)
		})
	} else {
		var meter progress.Meter
		c.progress.measureWith(func() (string, amount) {
			p, _ := meter.Last()
			return meter.Describe(time.Now()), amount{p.Done, p.Total}
		})
		o.Report = meter.Report
		held, cancel = context.WithTimeoutCause(ctx, c.waitBudget(), errHold)
		defer cancel()
		r, err = run(held, o)
	}
	m := Moved{
		SizeBytes: r.SizeBytes, SHA256: r.SHA256, ResumedFrom: r.ResumedFrom, TransferredBytes: r.MovedBytes,
		Files: r.Files, Skipped: r.Skipped, Notes: r.Notes,
		done: max(r.DoneBytes, r.ResumedFrom+r.MovedBytes), folder: r.IsDir, took: time.Since(c.started),
	}
	switch {
	case err == nil && r.Files > 0 && r.Skipped == r.Files:
		m.Status = moveUnchanged
	case err == nil:
		m.Status = moveDone
	case ranOut(ctx, held, err):
		m.Status, m.CanContinue = movePartial, true
		err = c.heldUp(err, r)
	default:
		m.Status = moveFailed
	}
	return r, m, about(hint.Transfer, "", err)
}

// ranOut reports whether held's end caused err, rather than a cancellation by the host. The
// call's own ctx may have ended too, on a machine that is slow to stop.
func ranOut(ctx, held context.Context, err error) bool {
	if held.Err() == nil || errors.Is(ctx.Err(), context.Canceled) {
		return false
	}
	return errors.Is(err, errHold) || errors.Is(err, context.DeadlineExceeded) || stuck(err)
}

// stuck reports whether the connection or the executor prevented progress at the end.
func stuck(err error) bool {
	return refusalCode(err) != "" || unreachable(err)
}

// heldUp returns what prevented the progress of a transfer that ran out of time. If something was
// transferred, that is only a warning.
func (c *call) heldUp(err error, r transfer.Result) error {
	if !stuck(err) {
		return nil
	}
	if r.MovedBytes == 0 {
		return err
	}
	p := transferProblem(err)
	c.warn("At the end the transfer could not continue (%s). %s", p.Message, p.Hint)
	return nil
}

func transferProblem(err error) *Problem {
	p := problemAbout(hint.Transfer, err)
	if p.Code == codeCancelled {
		p.Message = "the host cancelled this call; what was transferred until then is kept"
	}
	return p
}

// command returns a tool call as a model writes it. args are pairs of a name and a value;
// those with zero values are omitted, because these are the defaults.
func command(name string, args ...any) string {
	var all []string
	for pair := range slices.Chunk(args, 2) {
		if pair[1] == "" || pair[1] == false {
			continue
		}
		b, _ := plain.JSON(pair[1], "") // a string, a number or a bool
		all = append(all, fmt.Sprintf("%s=%s", pair[0], strings.TrimSuffix(string(b), "\n")))
	}
	return name + "(" + strings.Join(all, ", ") + ")"
}

// text describes a transfer to a path, which is for a line of the relay's.
func (m *Moved) text(w *words, path string) {
	switch m.Status {
	case moveFailed: // the error says so
	case movePartial:
		fmt.Fprintf(w, "Not done yet: %s transferred so far\nNext step: %s\n", progress.Share(m.done, m.SizeBytes), m.NextCommand)
	default:
		fmt.Fprintf(w, "%s: %s\n", path, m.summary())
	}
	w.notes(m.Notes)
}

// summary is what a finished transfer has moved, and in which time.
func (m *Moved) summary() string {
	parts := []string{progress.Bytes(m.SizeBytes)}
	if m.folder {
		parts = []string{plain.Count(m.Files, "file"), progress.Bytes(m.SizeBytes)}
		if m.Skipped > 0 {
			parts = append(parts, fmt.Sprintf("%d unchanged", m.Skipped))
		}
	}
	switch {
	case m.Status == moveUnchanged && !m.folder:
		parts = append(parts, "unchanged")
	case m.ResumedFrom > 0:
		parts = append(parts, fmt.Sprintf("in %s, resumed from %s", progress.Duration(m.took), progress.Bytes(m.ResumedFrom)))
	default:
		parts = append(parts, "in "+progress.Duration(m.took))
	}
	if m.SHA256 != "" {
		parts = append(parts, "SHA-256 "+m.SHA256)
	}
	return strings.Join(parts, ", ")
}
