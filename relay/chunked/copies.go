package chunked

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"colabrelay/relay/kernelstate"
	"colabrelay/relay/plain"
	"colabrelay/shared/contract"
)

// Keep bounds the time and traffic that a run may spend on copies of its variables.
type Keep struct {
	Every       time.Duration // the least time between two copies, on the VM and to this computer
	Percent     float64       // of the time that iterations have taken
	MaxBytes    int64         // of one copy; 0 keeps nothing
	TunnelBytes int64         // of all copies of a run that are fetched through a tunnel
}

const (
	// guessedRate is how many bytes per second a fetch is expected to get.
	guessedRate = 2 << 20
	// maxListed bounds the variables that a note lists.
	maxListed = 20
)

// Copy is a copy of the carried variables.
type Copy struct {
	Path       string `json:"path"` // on the VM's disk
	Bytes      int64  `json:"bytes"`
	SHA256     string `json:"sha256"`
	Done       int64  `json:"done"`              // the iterations whose results it contains
	InstanceID string `json:"instance_id"`       // of the VM that made it
	Version    string `json:"version,omitempty"` // of a copy on this computer
}

// fits reports whether a copy is one that a job may be told to load: of iterations that count.
// Their values are also those of corrected code, if the person keeps the iterations.
func (c *Copy) fits(done int64) bool {
	return c != nil && c.Path != "" && len(c.Path) <= maxPath && c.Bytes > 0 && c.Done >= 0 && c.Done <= done &&
		contract.SHA256Pattern().MatchString(c.SHA256)
}

// Variables says which variables iterations pass on and whether a copy of them is kept. It is
// empty if they pass on none, or if no round has ended.
func (r *Record) Variables() string {
	switch {
	case len(r.Carried) == 0, r.Status == StatusFinished: // then copies are deleted
		return ""
	case r.Kept.fits(r.Recorded):
		return fmt.Sprintf("%s: a copy from before iteration %d is on this computer, for a new kernel", r.carried(), r.Kept.Done)
	case r.OnVM.fits(r.Recorded):
		return fmt.Sprintf("%s: a copy from before iteration %d is on the VM, for a new kernel there", r.carried(), r.OnVM.Done)
	case len(r.Unsaveable) > 0:
		return fmt.Sprintf("%s: not kept (%s)", r.carried(), reasons(r.Unsaveable))
	}
	return fmt.Sprintf("%s: not kept yet", r.carried())
}

func (r *Record) carried() string { return List(r.Carried) }

// List lists names for a message.
func List(names []string) string {
	words := make([]string, min(len(names), maxListed))
	for i := range words {
		words[i] = plain.Word(names[i])
	}
	switch {
	case len(names) == 0:
		return "variables that it does not name"
	case len(names) > maxListed:
		return strings.Join(words, ", ") + fmt.Sprintf(" and %d more", len(names)-maxListed)
	}
	return strings.Join(words, ", ")
}

// reasons lists the first three omissions for a message.
func reasons(omitted []unkept) string {
	var all []string
	for _, o := range omitted[:min(len(omitted), 3)] {
		why := plain.Quote(o.Reason)
		if o.Name != "" {
			why = plain.Word(o.Name) + ": " + why
		}
		all = append(all, why)
	}
	if more := len(omitted) - len(all); more > 0 {
		all = append(all, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(all, "; ")
}

// noteUnkept tells once, while something can still be done, that a new kernel would stop the run.
func (run *runner) noteUnkept(found []unkept) {
	told := len(run.record.Unsaveable) > 0
	if run.record.Unsaveable = found; told || len(found) == 0 || run.record.Independent {
		return
	}
	run.addNote("a new kernel would stop this run, because the following can't be kept: %s. "+
		"If no iteration needs what another one left, call again with independent=true", reasons(found))
}

// place returns the copy that the next job may load, on that VM's disk: the VM's own, or the one
// of this computer, which is uploaded if the VM lacks it. ready is false if that needs another call.
func (run *runner) place(ctx context.Context, instance string) (c *Copy, ready bool, err error) {
	r := run.record
	switch {
	case r.OnVM.fits(r.Recorded) && r.OnVM.InstanceID == instance:
		return r.OnVM, true, nil
	case !r.Kept.fits(r.Recorded) || run.opt.Keeper == nil || r.Answer == GoOnLost:
		return nil, true, nil
	}
	path, err := run.opt.Keeper.Place(ctx, r.Kept.Version, run.opt.Until)
	switch {
	case errors.Is(err, kernelstate.ErrDamaged), errors.Is(err, kernelstate.ErrNotFound), errors.Is(err, kernelstate.ErrNoVersion):
		run.addNote("the kept variables can't be restored: %v", err)
		r.Kept = nil
		return nil, true, nil
	case err != nil:
		return nil, false, err
	case path == "":
		run.addNote("the variables of iteration %d are still being sent to the new VM", r.Kept.Done)
		return nil, false, nil
	}
	sent := *r.Kept
	sent.Path = path
	return &sent, true, nil
}

// isCopyDue reports whether to fetch the newest copy from the VM now.
func (run *runner) isCopyDue() bool {
	r, b := run.record, run.opt.Keep
	switch {
	case run.opt.Keeper == nil, b.MaxBytes == 0, r.Ending, !r.OnVM.fits(r.Recorded):
	case r.OnVM.InstanceID != run.vm.InstanceID(), r.OnVM.Bytes > b.MaxBytes:
	case r.Kept != nil && r.Kept.SHA256 == r.OnVM.SHA256:
		r.Kept.Done = r.OnVM.Done // the same values at a later iteration
	case time.Since(r.KeepTried) < b.Every, r.KeepBytes+r.OnVM.Bytes > b.TunnelBytes:
	default:
		return time.Until(run.opt.Until).Seconds() > float64(r.OnVM.Bytes)/guessedRate
	}
	return false
}

// fetch downloads the newest copy. A failure does not stop the run: the VM deletes its older
// copies, so the file may be gone.
func (run *runner) fetch(ctx context.Context) {
	r, newest := run.record, *run.record.OnVM
	run.copyDue, r.KeepTried = false, time.Now().UTC()
	r.KeepBytes += newest.Bytes
	version, err := run.opt.Keeper.Fetch(ctx, kernelstate.KeptFile{
		Path: newest.Path, Bytes: newest.Bytes, SHA256: newest.SHA256, KernelID: r.KernelID, Until: run.opt.Until,
	})
	switch {
	case errors.Is(err, kernelstate.ErrGone): // there is a newer one, which the next round tells
		r.OnVM, r.KeepTried = nil, time.Time{}
		return
	case err != nil || version == "":
		if err != nil {
			run.addNote("the variables that iterations pass on could not be copied to this computer this time: %v", err)
		}
		return
	}
	newest.Version = version
	r.Kept = &newest
	if run.save() != nil {
		return // so older ones stay
	}
	if err := run.opt.Keeper.DropOthers(version); err != nil {
		run.addNote("older kept variables could not be deleted: %v", err)
	}
}

// dropCopies deletes the kept variables on this computer. The kernel deletes its own.
func (run *runner) dropCopies() {
	run.record.Kept, run.record.OnVM = nil, nil
	if run.opt.Keeper == nil {
		return
	}
	if err := run.opt.Keeper.DropAll(); err != nil {
		run.addNote("the kept variables of the run could not be deleted: %v", err)
	}
}
