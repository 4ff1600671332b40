package kernelstate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/transfer"
	"colabrelay/shared/contract"
	"colabrelay/shared/keep"
)

// maxAge is how old saved variables may be before the answer says so.
const maxAge = 2 * time.Minute

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
	if age := time.Since(p.Started); j.resumed && (age > maxAge || j.otherCodeRan) {
		s.warn("these are the variables as they were %s ago, when the save was started; call again to save the current ones", age.Round(time.Second))
	}
	s.Warnings = append(s.Warnings, s.Manifest.Warnings...)
	j.removeRemote(ctx, p.Remote)
	if err := j.prune(j.o.keep()); err != nil {
		s.warn("older versions could not be deleted: %v", err)
	}
}

func (o Options) keep() int {
	if o.Keep == 0 {
		return DefaultKeep
	}
	return min(max(o.Keep, 1), MaxKeep)
}

// collect runs the operation that writes the variables to a file on the VM.
func (j *job) collect(ctx context.Context, p *pending, s *Saved) error {
	savePending := func() error { return j.savePending(savingFile, p) }
	text, err := j.run(ctx, &p.Work, operationOf(saveTitle, "save"), savePending, &s.Progress)
	if err != nil || text == nil {
		return err
	}
	var report saved
	if err := readSaved(text, &report); err != nil {
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

func readSaved(text json.RawMessage, report *saved) error {
	if err := decode(text, report); err != nil {
		return err
	}
	return report.check()
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
	if err := j.checkDownload(p, s, err); err != nil {
		return err
	}
	if err := publish(folder, s.Path, p.Manifest); err != nil {
		return fmt.Errorf("storing state %q: %w", j.o.Name, err)
	}
	s.Phase = PhaseDone
	return nil
}

// checkDownload returns why a download that ended with err did not produce the file that the
// kernel reported. If another attempt can't produce it either, the work ends.
func (j *job) checkDownload(p *pending, s *Saved, err error) error {
	var refused *contract.Error
	switch {
	case errors.As(err, &refused) && refused.Code == contract.CodeNotFound:
		err = fmt.Errorf("%w: %w", ErrGone, err)
	case errors.Is(err, transfer.ErrUnexpected):
		err = fmt.Errorf("the file on the VM is not the one that the kernel reported: %w", err)
	case err != nil:
		return err
	case s.Transfer.SHA256 != p.Manifest.SHA256 || s.Transfer.SizeBytes != p.Manifest.Bytes:
		err = fmt.Errorf("downloading the state: %w", transfer.ErrChanged)
	default:
		return nil
	}
	j.removePending(savingFile)
	return err
}

// publish makes the folder a version. It is complete and on disk before it is renamed.
func publish(folder, version string, m *Manifest) error {
	if err := keep.WriteJSON(filepath.Join(folder, manifestFile), m); err != nil {
		return err
	}
	if err := syncFile(filepath.Join(folder, dataFile)); err != nil {
		return err
	}
	return os.Rename(folder, version)
}

func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
