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
)

// asOfNow is how old variables may be without a word about it.
const asOfNow = 2 * time.Minute

// Saved is where a save stands. Manifest is filled once the kernel has done its part.
type Saved struct {
	Progress
	Manifest Manifest
	Path     string // the version's folder, once it is there
}

// Save keeps the kernel's variables below dir as a new version of o.Name. Where the
// call's time ends before it is done, the same call goes on. Versions that were there
// before stay as they are until the new one is whole; then all but the newest o.Keep
// go.
func Save(ctx context.Context, c *client.Client, dir string, o Options) (Saved, error) {
	j, done, err := open(c, dir, o)
	if err != nil {
		return Saved{}, err
	}
	defer done()
	s, err := j.save(ctx)
	if j.beginAnew(err) {
		return j.save(ctx)
	}
	return s, err
}

func (j *job) save(ctx context.Context) (Saved, error) {
	var s Saved
	p, err := j.takeUp(ctx, savingFile, PhaseCollecting, &s.Progress)
	if err != nil {
		return s, err
	}
	s.Phase = p.Phase
	if p.Phase == PhaseCollecting {
		err := j.collect(ctx, &p, &s)
		if over(err) {
			j.forget(savingFile)
		}
		if err != nil || p.Phase == PhaseCollecting {
			return s, err
		}
	}
	s.Phase, s.Manifest = p.Phase, *p.Manifest
	if err := j.fetch(ctx, &p, &s); err != nil || !s.Done() {
		return s, err
	}
	if age := time.Since(p.Started); j.resumed && (age > asOfNow || j.passed) {
		s.warn("these are the variables of %s ago, when the save was begun; call again to save those of now", age.Round(time.Second))
	}
	s.Warnings = append(s.Warnings, s.Manifest.Warnings...)
	j.removeRemote(ctx, p.Remote)
	if err := j.prune(j.o.keep()); err != nil {
		s.warn("older versions could not be dropped: %v", err)
	}
	return s, nil
}

func (o Options) keep() int {
	if o.Keep == 0 {
		return DefaultKeep
	}
	return min(max(o.Keep, 1), MaxKeep)
}

// collect has the kernel write its variables to a file on the VM.
func (j *job) collect(ctx context.Context, p *pending, s *Saved) error {
	note := func() error { return j.note(savingFile, p) }
	report, err := j.run(ctx, &p.Work, j.cell(saveTitle, "save"), &s.Progress, note)
	if err != nil || report == nil {
		return err
	}
	var told saved
	if err := j.readSaved(report, &told); err != nil {
		j.forget(savingFile)
		return err
	}
	m := j.manifestOf(*p, s.Execution, told.Manifest)
	all, err := versions(j.folder)
	if err != nil {
		return err
	}
	m.Version = nextVersion(all, p.Started)
	p.Phase, p.Remote, p.Manifest = PhaseFetching, told.Path, &m
	return note()
}

func (j *job) readSaved(report json.RawMessage, told *saved) error {
	if err := decode(report, told); err != nil {
		return err
	}
	return told.check()
}

// check refuses a report that nothing may be fetched by.
func (s *saved) check() error {
	if err := s.Manifest.check(); err != nil {
		return fmt.Errorf("%w: %v", ErrUntrustedReport, err)
	}
	if s.Manifest.Bytes > maxBytes {
		return fmt.Errorf("%w: the state has %d bytes, over %d", ErrUntrustedReport, s.Manifest.Bytes, int64(maxBytes))
	}
	return checkPlace(s.Path)
}

// fetch brings the file to the laptop and makes a version of it.
func (j *job) fetch(ctx context.Context, p *pending, s *Saved) error {
	s.Path = filepath.Join(j.folder, p.Manifest.Version)
	if _, err := os.Stat(s.Path); err != nil { // else only the forgetting was cut off
		if err := j.download(ctx, p, s); err != nil || s.Phase == PhaseFetching {
			return err
		}
	}
	s.Phase = PhaseDone
	j.forget(savingFile)
	return nil
}

func (j *job) download(ctx context.Context, p *pending, s *Saved) error {
	held, cancel := j.held(ctx)
	defer cancel()
	folder := filepath.Join(j.folder, incoming)
	var err error
	s.Transfer, err = transfer.Download(held, j.c, p.Remote, transfer.Local{Dir: folder, Name: dataFile}, transfer.Options{
		Overwrite: true, Report: j.o.Report,
		Expect: &transfer.Expected{SizeBytes: p.Manifest.Bytes, SHA256: p.Manifest.SHA256},
	})
	var refused *contract.Error
	switch {
	case err != nil && held.Err() != nil && ctx.Err() == nil:
		return j.note(savingFile, p) // the call's time is over, no more
	case errors.As(err, &refused) && refused.Code == contract.CodeNotFound:
		j.forget(savingFile)
		return fmt.Errorf("the kernel's file is gone from the VM: %w", err)
	case errors.Is(err, transfer.ErrUnexpected):
		j.forget(savingFile)
		return fmt.Errorf("the VM's file is not the state that the kernel reported: %w", err)
	case err != nil:
		return err
	case s.Transfer.SHA256 != p.Manifest.SHA256 || s.Transfer.SizeBytes != p.Manifest.Bytes:
		j.forget(savingFile)
		return fmt.Errorf("fetching the state: %w", transfer.ErrChanged)
	}
	if err := publish(folder, s.Path, p.Manifest); err != nil {
		return fmt.Errorf("keeping state %q: %w", j.o.Name, err)
	}
	s.Phase = PhaseDone
	return nil
}

// publish makes the folder a version: whole and on disk before it has the name of one.
func publish(folder, version string, m *Manifest) error {
	if err := writeJSON(filepath.Join(folder, manifestFile), m); err != nil {
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
