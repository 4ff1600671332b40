package kernelstate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/kernelcall"
	"colabrelay/relay/transfer"
	"colabrelay/shared/contract"
	"colabrelay/shared/keep"
	"colabrelay/shared/kernelpy"
)

// Saved is how far a save is. Manifest is empty until the kernel has written the data.
type Saved struct {
	Progress
	Manifest Manifest
	Path     string // the version's folder
}

// Save saves the kernel's variables below dir as a new version of o.Name. If o.Until passes
// before it is finished, the same call resumes it. Existing versions stay until the new one
// is complete; then all except the newest o.Keep are deleted.
func Save(ctx context.Context, c *client.Client, dir string, o Options) (Saved, error) {
	return inJob(c, dir, o, func(j *job) (Saved, error) { return j.save(ctx) })
}

func (j *job) save(ctx context.Context) (Saved, error) {
	var s Saved
	p, err := j.resumeOrStart(ctx, savingFile, PhaseCollecting, &s.Progress)
	if err != nil {
		return s, err
	}
	s.Phase = p.Phase
	if p.Phase == PhaseCollecting {
		err := j.collect(ctx, &p, &s)
		if isFinal(err) {
			j.removePending(savingFile)
		}
		if err != nil || p.Phase == PhaseCollecting {
			return s, err
		}
	}
	s.Phase, s.Manifest = p.Phase, *p.Manifest
	if err := j.fetch(ctx, &p, &s); err != nil || !s.Done() {
		return s, err
	}
	j.finishSave(ctx, &p, &s)
	return s, nil
}

// finishSave adds the warnings of a finished save and deletes what it no longer needs.
func (j *job) finishSave(ctx context.Context, p *pending, s *Saved) {
	if j.resumed {
		s.warn("these are the variables as they were %s ago, when the save was started; if other code has run since then, save again", time.Since(p.Started).Round(time.Second))
	}
	s.Warnings = append(s.Warnings, s.Manifest.Warnings...)
	j.removeRemote(ctx, p.Remote)
	if err := j.prune(cmp.Or(j.o.Keep, DefaultKeep)); err != nil {
		s.warn("older versions could not be deleted: %v", err)
	}
}

// collect runs the operation that writes the variables to a file on the VM.
func (j *job) collect(ctx context.Context, p *pending, s *Saved) error {
	savePending := func() error { return j.savePending(savingFile, p) }
	text, err := j.run(ctx, &p.Work, operationOf(saveTitle, "save"), savePending, &s.Progress)
	if err != nil || text == nil {
		return err
	}
	report, err := readSaved(ctx, text)
	if err != nil {
		j.removePending(savingFile)
		return err
	}
	m := j.manifestOf(*p, s.Execution, report.Manifest)
	all, err := versions(j.folder)
	if err != nil {
		return err
	}
	m.Version = nextVersion(all, p.Started)
	p.Phase, p.Remote, p.Manifest = PhaseFetching, report.Path, &m
	return savePending()
}

func readSaved(ctx context.Context, text json.RawMessage) (report saved, err error) {
	if err = decode(ctx, text, &report); err == nil {
		err = report.check()
	}
	return report, err
}

// check refuses a report that names another file than a state, or no valid state.
func (s *saved) check() error {
	if err := s.Manifest.check(); err != nil {
		return fmt.Errorf("%w: %v", ErrUntrustedReport, err)
	}
	if s.Manifest.Bytes > maxBytes {
		return fmt.Errorf("%w: the state has %d bytes, over %d", ErrUntrustedReport, s.Manifest.Bytes, int64(maxBytes))
	}
	return checkPlace(s.Path)
}

// fetch downloads the file and makes a version of it. If the version exists already, an
// earlier call was cut off just before it removed the pending work.
func (j *job) fetch(ctx context.Context, p *pending, s *Saved) error {
	s.Path = filepath.Join(j.folder, p.Manifest.Version)
	if _, err := os.Stat(s.Path); err != nil {
		if err := j.download(ctx, p, s); err != nil || s.Phase == PhaseFetching {
			return err
		}
	}
	s.Phase = PhaseDone
	j.removePending(savingFile)
	j.removePending(restoringFile) // of an older version
	return nil
}

func (j *job) download(ctx context.Context, p *pending, s *Saved) error {
	due, cancel := j.untilDue(ctx)
	defer cancel()
	folder := filepath.Join(j.folder, incoming)
	var err error
	s.Transfer, err = transfer.Download(due, j.c, p.Remote, transfer.Local{Dir: folder, Name: dataFile}, transfer.Options{
		Overwrite: true, Report: j.o.Report,
		Expect: &transfer.Expected{SizeBytes: p.Manifest.Bytes, SHA256: p.Manifest.SHA256},
	})
	if err != nil && due.Err() != nil && ctx.Err() == nil {
		return j.savePending(savingFile, p) // the next call resumes the download
	}
	if err != nil {
		return j.notDownloaded(err)
	}
	if err := publish(folder, s.Path, p.Manifest); err != nil {
		return fmt.Errorf("storing state %q: %w", j.o.Name, err)
	}
	s.Phase = PhaseDone
	return nil
}

// notDownloaded returns why a download that ended with err did not produce the file that the
// kernel reported. If another attempt can't produce it either, the work ends.
func (j *job) notDownloaded(err error) error {
	var refused *contract.Error
	switch {
	case errors.As(err, &refused) && refused.Code == contract.CodeNotFound:
		err = fmt.Errorf("%w: %w", ErrGone, err)
	case errors.Is(err, transfer.ErrUnexpected):
		err = fmt.Errorf("the file on the VM is not the one that the kernel reported: %w", err)
	default:
		return err
	}
	j.removePending(savingFile)
	return err
}

// publish makes the folder a version. The data is complete and on disk, as transfer leaves it.
func publish(folder, version string, m *Manifest) error {
	if err := keep.WriteJSON(filepath.Join(folder, manifestFile), m); err != nil {
		return err
	}
	return os.Rename(folder, version)
}

const (
	// mime is the type of the display output that has an operation's report.
	mime = contract.OwnMIME + "state+json"
	// progressMIME is the type of the display outputs by which state/progress.py reports At.
	progressMIME = contract.OwnMIME + "state-progress+json"
	// maxReport bounds the report of an operation; save.py makes shorter ones.
	maxReport = 16 << 20
)

// Titles of the operations. The first line of an operation starts with "# " and its title.
const (
	saveTitle    = "colab-relay: save state"
	prepareTitle = "colab-relay: prepare to restore state"
	restoreTitle = "colab-relay: restore state"
	clearTitle   = "colab-relay: delete files of state"
)

// operation is a call of a function of state/operate.py in shared/kernelpy.
type operation struct {
	title string
	call  kernelpy.Call
	limit time.Duration
}

func operationOf(title, function string, arguments ...any) operation {
	return operation{title, kernelpy.Call{Function: "state.operate." + function, Arguments: arguments, MIME: mime}, deadline}
}

// pinned is a client whose submits go to the VM that the work is on, and to no other.
type pinned struct{ *client.Client }

func (p pinned) Submit(ctx context.Context, s contract.Submit) (contract.Execution, error) {
	return p.SubmitTo(ctx, p.InstanceID(), s)
}

// run makes the ticket's call, or goes on with the one of an earlier call, and returns its report.
// The report is nil if the call's time is over before the operation ends. A Keeper waits also
// behind a run that asks for input: it has no one to tell, and its time is short.
func (j *job) run(ctx context.Context, t *kernelcall.Ticket, op operation, save func() error, p *Progress) (json.RawMessage, error) {
	report, last, err := t.Call(ctx, pinned{j.c}, op.call, kernelcall.Options{
		Title: fmt.Sprintf("%s %q", op.title, j.o.Name), Until: j.o.Until, Limit: op.limit, MaxReport: maxReport,
		Save: save, Visit: p.see, BehindInput: j.o.kept,
	})
	p.Execution, p.Queued = last, last.Status == contract.StatusQueued
	return report, err
}

// see takes in which variable the kernel is at.
func (p *Progress) see(e contract.Execution) {
	for _, event := range e.Events {
		if data, ok := event.Data[progressMIME]; ok {
			p.At = At{} // in case it can't be read
			_ = json.Unmarshal(data, &p.At)
		}
	}
}

// isFinal reports whether an error means that an operation can't be resumed: it failed, or
// the executor does not know it.
func isFinal(err error) bool {
	if _, ended := errors.AsType[*kernelcall.EndedError](err); ended || errors.Is(err, kernelcall.ErrNoReport) || errors.Is(err, client.ErrReportTooLong) {
		return true
	}
	refused, ok := errors.AsType[*contract.Error](err)
	return ok && (refused.Code == contract.CodeNotFound || refused.Code == contract.CodeConflict || refused.Code == contract.CodeNewInstance)
}

// clearWait bounds how long an answer waits until the kernel has deleted a file. If the
// answer came earlier, the caller's next request for the variables would be refused as
// kernel_busy. The deletion takes longer only while the kernel runs other code, and then
// that refusal is right.
const clearWait = 3 * time.Second

// removeRemote deletes a state's file and its folder on the VM. If that fails, the next save
// there deletes folders that are a day old.
func (j *job) removeRemote(ctx context.Context, path string) {
	ctx, cancel := context.WithTimeout(ctx, clearWait+2*time.Second)
	defer cancel()
	o := *j
	o.o.Until, o.o.kept = time.Now().Add(clearWait), true
	t, op := kernelcall.New(), operationOf(clearTitle, "remove", path)
	op.limit = time.Minute
	_, _ = o.run(ctx, &t, op, nil, &Progress{})
}

// decode decodes a report into v.
func decode(ctx context.Context, report json.RawMessage, v any) error {
	if err := client.Decode(ctx, report, v); err != nil {
		return fmt.Errorf("%w: %v", ErrUntrustedReport, err)
	}
	return nil
}
