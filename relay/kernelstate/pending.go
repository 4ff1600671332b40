package kernelstate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"colabrelay/relay/kernelcall"
	"colabrelay/shared/bounded"
	"colabrelay/shared/keep"
)

// Files of unfinished work, in the folder of the name.
const (
	savingFile    = "saving.json"
	restoringFile = "restoring.json"
	incoming      = "incoming" // the folder that becomes a version
)

// pending is an unfinished save or restore. It is on disk before each step, so that a later
// call, also of another relay process, can resume it.
type pending struct {
	Phase      Phase     `json:"phase"`
	InstanceID string    `json:"instance_id"`
	Started    time.Time `json:"started"`
	Touched    time.Time `json:"touched"` // by the last call

	Prepare  kernelcall.Ticket `json:"prepare"`            // restore: the operation that makes the folder
	Work     kernelcall.Ticket `json:"work"`               // the operation that saves or loads
	Remote   string            `json:"remote,omitempty"`   // the data file on the VM
	Manifest *Manifest         `json:"manifest,omitempty"` // nil until the contents are known
	Asked    string            `json:"asked,omitempty"`    // restore: Options.Version
}

// resumeOrStart returns the work of an earlier call if it can be resumed, or new work that
// starts with phase.
func (j *job) resumeOrStart(ctx context.Context, file string, phase Phase, p *Progress) (pending, error) {
	instance, err := j.instance(ctx)
	if err != nil {
		return pending{}, err
	}
	old, ok := j.readPending(file)
	if j.resumed = ok && j.canResume(ctx, file, &old, instance, p); j.resumed {
		return old, j.savePending(file, &old)
	}
	if file == savingFile {
		if err := j.removeIncoming(); err != nil {
			return pending{}, err
		}
	}
	started := j.newPending(phase, instance)
	return started, j.savePending(file, &started)
}

// canResume reports whether old work serves this call. If not, it adds a
// warning and deletes what the work left on the VM.
func (j *job) canResume(ctx context.Context, file string, old *pending, instance string, p *Progress) bool {
	now := time.Now().UTC()
	switch {
	case old.InstanceID != instance:
		p.warn("the unfinished work was on another VM; it was started again")
	case now.Sub(old.Touched) > resumable || now.Before(old.Touched.Add(-time.Minute)):
		p.warn("the work that was started at %s and not finished was abandoned", old.Started.Format(time.RFC3339))
		j.removeSent(ctx, old)
	default:
		return true
	}
	return false
}

// newPending returns work that starts now.
func (j *job) newPending(phase Phase, instance string) pending {
	return pending{
		Phase: phase, InstanceID: instance, Started: time.Now().UTC(),
		Prepare: kernelcall.New(), Work: kernelcall.New(),
	}
}

// readPending reads unfinished work. A file that can't be read counts as missing: it only
// says where to resume.
func (j *job) readPending(file string) (pending, bool) {
	var p pending
	text, err := bounded.ReadFile(filepath.Join(j.folder, file), maxManifest)
	if err != nil || json.Unmarshal(text, &p) != nil {
		return pending{}, false
	}
	return p, p.Work.RequestID != ""
}

// savePending writes the file of unfinished work.
func (j *job) savePending(file string, p *pending) error {
	p.Touched = time.Now().UTC()
	return keep.WriteJSON(filepath.Join(j.folder, file), p)
}

// removePending ends the work: the next call starts new work.
func (j *job) removePending(file string) {
	_ = os.Remove(filepath.Join(j.folder, file))
}

// removeIncoming deletes an unfinished download.
func (j *job) removeIncoming() error {
	if err := os.RemoveAll(filepath.Join(j.folder, incoming)); err != nil {
		return fmt.Errorf("deleting the unfinished download of %q: %w", j.o.Name, err)
	}
	return nil
}

// shouldRestart reports whether the call should start the work again, because what it
// resumed no longer exists on the VM.
func (j *job) shouldRestart(err error) bool {
	_, ended := errors.AsType[*kernelcall.EndedError](err)
	return j.resumed && isFinal(err) && !ended
}
