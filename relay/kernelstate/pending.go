package kernelstate

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/natefinch/atomic"
)

// Files of work that is under way, in the folder of the name.
const (
	savingFile    = "saving.json"
	restoringFile = "restoring.json"
	incoming      = "incoming" // the folder that becomes a version
)

// touchAfter spares a call that takes something up the write that only says when.
const touchAfter = time.Minute

// pending is a save or restore under way, on disk before each step, so that a call
// after a cut, or of another relay, takes it up.
type pending struct {
	Schema     int       `json:"schema"`
	Phase      Phase     `json:"phase"`
	Runtime    string    `json:"runtime"`
	InstanceID string    `json:"instance_id"`
	Started    time.Time `json:"started"`
	Touched    time.Time `json:"touched"` // by the last call

	Prepare  step      `json:"prepare"`            // restore
	Work     step      `json:"work"`               // the execution that saves or loads
	Remote   string    `json:"remote,omitempty"`   // the data file on the VM
	Manifest *Manifest `json:"manifest,omitempty"` // once it is known
	Asked    string    `json:"asked,omitempty"`    // restore: the version asked for
	Newest   string    `json:"newest,omitempty"`   // restore: the newest version then
}

// takeUp gives the pending work of an earlier call where it is still meant, else new
// work that begins with phase.
func (j *job) takeUp(ctx context.Context, file string, phase Phase, p *Progress) (pending, error) {
	instance, err := j.instance(ctx)
	if err != nil {
		return pending{}, err
	}
	now := time.Now().UTC()
	old, ok := j.readPending(file)
	switch {
	case !ok:
	case old.Runtime != j.o.Runtime:
		p.warn("what was begun for runtime %q was given up for this call", old.Runtime)
	case old.InstanceID != instance:
		p.warn("what was begun on the VM before is gone with it; it was begun anew")
	case now.Sub(old.Touched) > resumable || now.Before(old.Touched.Add(-time.Minute)):
		p.warn("what was begun at %s and not finished was given up", old.Started.Format(time.RFC3339))
		if old.Remote != "" {
			j.removeRemote(ctx, old.Remote)
		}
	case file == savingFile && j.outrun(ctx, &old):
		p.warn("other code ran since the save of %s ago was begun, so it was given up and begun anew: run nothing more until it is saved", now.Sub(old.Started).Round(time.Second))
		j.giveUp(ctx, &old)
	default:
		j.resumed = true
		if now.Sub(old.Touched) > touchAfter {
			err = j.note(file, &old)
		}
		return old, err
	}
	j.resumed = false
	if file == savingFile {
		if err := os.RemoveAll(filepath.Join(j.folder, incoming)); err != nil {
			return pending{}, fmt.Errorf("clearing up state %q: %w", j.o.Name, err)
		}
	}
	begun := j.fresh(phase, instance)
	return begun, j.note(file, &begun)
}

// fresh is work that begins now.
func (j *job) fresh(phase Phase, instance string) pending {
	return pending{
		Schema: schema, Phase: phase, Runtime: j.o.Runtime, InstanceID: instance, Started: time.Now().UTC(),
		Prepare: step{RequestID: rand.Text()}, Work: step{RequestID: rand.Text()},
	}
}

// readPending reads what is under way. A file that can't be read is as good as none:
// all it holds is where to go on.
func (j *job) readPending(file string) (pending, bool) {
	var p pending
	text, err := readBounded(filepath.Join(j.folder, file), maxManifest)
	if err != nil || json.Unmarshal(text, &p) != nil || p.Schema != schema {
		return pending{}, false
	}
	return p, p.Work.RequestID != ""
}

// note writes where the work stands.
func (j *job) note(file string, p *pending) error {
	p.Touched = time.Now().UTC()
	return writeJSON(filepath.Join(j.folder, file), p)
}

// beginAnew reports that what a call took up turned out to be gone from the VM, so
// that it should begin anew at once: the caller asked for the whole, not for the rest.
func (j *job) beginAnew(err error) bool {
	var run *RunError
	return err != nil && j.resumed && over(err) && !errors.As(err, &run)
}

// forget ends the work: what comes next begins anew.
func (j *job) forget(file string) {
	_ = os.Remove(filepath.Join(j.folder, file))
}

// writeJSON writes v in one step: the file is the old one or the new one.
func writeJSON(path string, v any) error {
	text, err := json.MarshalIndent(v, "", " ")
	if err == nil {
		err = atomic.WriteFile(path, bytes.NewReader(text))
	}
	if err == nil {
		err = os.Chmod(path, 0o600)
	}
	if err != nil {
		return fmt.Errorf("writing %q: %w", filepath.Base(path), err)
	}
	return nil
}
