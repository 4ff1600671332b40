package chunked

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"colabrelay/relay/kernelstate"
)

// KeepBounds limit the time and traffic that a run may spend on keeping variables.
type KeepBounds struct {
	Every    time.Duration // the least time between two attempts
	Share    float64       // of the time that iterations have taken
	MaxBytes int64         // of one copy; 0 keeps nothing
	RunBytes int64         // of all copies of the run; 0 means no bound
}

const (
	// firstCost is what keeping a few small variables takes, in seconds. It is used until
	// a cost was measured: with a share of 5%, the first copy is made after a second of
	// iterations.
	firstCost = 0.05
	// guessedRate is the download rate in bytes per second until one was measured.
	guessedRate = 2 << 20
	// maxListed bounds the variables that a note or the record lists.
	maxListed = 20
)

// CarriedVariables are the variables that iterations pass on, and how each may change.
type CarriedVariables struct {
	Names  map[string][]string `json:"names"`
	Opaque []string            `json:"opaque"` // kinds of code that may pass on others
}

func (c *CarriedVariables) isEmpty() bool {
	return c != nil && len(c.Names) == 0 && len(c.Opaque) == 0
}

func (c *CarriedVariables) names() []string {
	names := []string{}
	if c != nil {
		for name := range c.Names {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// String lists the names for a message.
func (c *CarriedVariables) String() string {
	names := c.names()
	switch {
	case len(names) == 0:
		return "variables that can't be determined"
	case len(names) > maxListed:
		return strings.Join(names[:maxListed], ", ") + fmt.Sprintf(" and %d more", len(names)-maxListed)
	}
	return strings.Join(names, ", ")
}

// VariableRecord is the part of a run's record about its variables.
type VariableRecord struct {
	Carried *CarriedVariables `json:"carries"` // nil until the kernel reported them
	Kept    *KeptVariables    `json:"kept"`    // the copy on this computer
	Recover recovery          `json:"recover"`

	Unsaveable         []kernelstate.Omission `json:"unkept"`      // why the newest variables are not kept
	UnsaveableReported bool                   `json:"unkept_told"` // a note said so
	KeepTried          time.Time              `json:"keep_tried"`
	KeepCost           float64                `json:"keep_cost"`    // seconds that the next copy will take
	KeepSeconds        float64                `json:"keep_seconds"` // of all copies
	KeepBytes          int64                  `json:"keep_bytes"`   // of all copies
	KeepRate           float64                `json:"keep_rate"`    // measured, in bytes per second
}

// KeptVariables is a copy of the variables, and the iteration and code they belong to.
type KeptVariables struct {
	Version     string   `json:"version"`
	Done        int64    `json:"done"` // the copy was made before iteration Done
	SHA256      string   `json:"sha256"`
	Absent      []string `json:"absent"`
	SetupSHA256 string   `json:"setup_sha256"`
	LoopSHA256  string   `json:"loop_sha256"`
}

// forgetCode drops what was learned from the previous code. It does not drop the copy, which
// can be used if that code returns.
func (v *VariableRecord) forgetCode() {
	v.Carried, v.Unsaveable, v.UnsaveableReported, v.KeepTried, v.Recover = nil, nil, false, time.Time{}, recoveryNone
}

// hasUsableCopy reports whether the kept variables belong to the current code.
func (r *Record) hasUsableCopy() bool {
	k := r.Kept
	return k != nil && k.SetupSHA256 == r.SetupSHA256 && k.LoopSHA256 == r.LoopSHA256 && k.Done <= r.Done
}

// prepareKeeping drops the copies and recoveries of earlier calls that this one can't use.
func (run *runner) prepareKeeping() {
	if run.replaced && run.opt.Keeper != nil {
		run.dropCopies()
	}
	if run.spec.OnNewKernel == NewKernelContinue || run.opt.Keeper == nil || !run.record.hasUsableCopy() {
		run.record.Recover = recoveryNone
	}
}

// dropCopies deletes the kept variables.
func (run *runner) dropCopies() {
	run.record.Kept, run.replaced = nil, false
	if run.opt.Keeper == nil {
		return
	}
	if err := run.opt.Keeper.DropAll(); err != nil {
		run.addNote("the kept variables of the run could not be deleted: %v", err)
	}
}

// isCopyDue reports whether to copy the variables now. It is called between two batches,
// when the kernel's variables are those before iteration Done.
func (run *runner) isCopyDue() bool {
	r, b := run.record, run.opt.Keep
	switch {
	case run.opt.Keeper == nil || b.MaxBytes == 0 || run.spec.OnNewKernel == NewKernelContinue:
	case r.Carried == nil || r.Carried.isEmpty() || r.Done == 0 || r.KernelID == "":
	case r.hasUsableCopy() && r.Kept.Done == r.Done:
	case time.Since(r.KeepTried) < b.Every:
	case r.KeepSeconds+run.keepCost() > run.allowance():
	case b.RunBytes > 0 && r.KeepBytes >= b.RunBytes:
	default:
		return time.Until(run.opt.Until).Seconds() > 1+2*run.keepCost()
	}
	return false
}

// keepCost is how many seconds the next copy will probably take.
func (run *runner) keepCost() float64 {
	if run.record.KeepCost == 0 {
		return firstCost
	}
	return run.record.KeepCost
}

// allowance is how many seconds all copies up to now may have taken.
func (run *runner) allowance() float64 {
	return run.opt.Keep.Share * (run.record.MeanSeconds*float64(run.record.Timed) + run.record.SetupSeconds)
}

// keepVariables copies the variables if a copy is due. A failure does not stop the run.
func (run *runner) keepVariables(ctx context.Context) error {
	if !run.isCopyDue() {
		return nil
	}
	r, started := run.record, time.Now()
	if len(r.Carried.Opaque) > 0 {
		run.reportUnsaveable(kernelstate.Omission{Reason: "the variables that iterations pass on can't be determined in code with " + strings.Join(r.Carried.Opaque, ", ")})
		r.KeepTried = started
		return nil
	}
	got, err := run.opt.Keeper.Keep(ctx, run.keepRequest())
	took := time.Since(started).Seconds()
	r.KeepTried, r.KeepSeconds = time.Now().UTC(), r.KeepSeconds+took
	run.recordCopy(got, err, took)
	if err := run.save(); err != nil {
		return err
	}
	if got.Version != "" {
		if err := run.opt.Keeper.DropOthers(got.Version); err != nil {
			run.addNote("older kept variables could not be deleted: %v", err)
		}
	}
	return nil
}

func (run *runner) keepRequest() kernelstate.KeepRequest {
	r := run.record
	request := kernelstate.KeepRequest{
		Run: r.Key, Names: r.Carried.names(), MaxBytes: run.opt.Keep.MaxBytes, AllowDownload: run.allowsDownload,
		MaxBusy: time.Duration(max(run.allowance()-r.KeepSeconds, firstCost) * float64(time.Second)),
		Until:   run.opt.Until,
	}
	if r.hasUsableCopy() {
		request.LastSHA256 = r.Kept.SHA256
	}
	return request
}

// allowsDownload reports whether the remaining time and traffic allow this download.
func (run *runner) allowsDownload(bytes int64) bool {
	r := run.record
	if most := run.opt.Keep.RunBytes; most > 0 && r.KeepBytes+bytes > most {
		run.reportUnsaveable(kernelstate.Omission{Reason: fmt.Sprintf("together with earlier copies they exceed the %d MB that one run may send through a tunnel", most>>20)})
		return false
	}
	rate := r.KeepRate
	if rate == 0 {
		rate = guessedRate
	}
	seconds := float64(bytes) / rate
	r.KeepCost = max(r.KeepCost, seconds)
	return r.KeepSeconds+seconds <= run.allowance() || seconds <= firstCost
}

// recordCopy records the result of an attempt to copy the variables, which took so many
// seconds.
func (run *runner) recordCopy(got kernelstate.KeepResult, err error, took float64) {
	r := run.record
	switch {
	case err != nil:
		run.addNote("the variables that iterations pass on could not be kept this time: %v", err)
		r.KeepCost = max(r.KeepCost, took)
	case got.Missing:
	case len(got.Unsaveable) > 0:
		run.reportUnsaveable(got.Unsaveable...)
		r.KeepCost = took
	case got.TooSlow, got.TimedOut, got.DownloadRefused:
		r.KeepCost = max(r.KeepCost, 2*took)
	case got.Unchanged:
		r.KeepCost, r.Unsaveable = took, nil
		r.Kept.Done, r.Kept.Absent = got.Done, got.Absent
	default:
		r.KeepCost, r.Unsaveable = took, nil
		r.KeepBytes += got.Bytes
		if got.Bytes > guessedRate/4 { // a small file measures the latency instead
			r.KeepRate = float64(got.Bytes) / took
		}
		r.Kept = &KeptVariables{
			Version: got.Version, Done: got.Done, SHA256: got.SHA256, Absent: got.Absent,
			SetupSHA256: r.SetupSHA256, LoopSHA256: r.LoopSHA256,
		}
	}
}

// reportUnsaveable records which variables can't be kept, and adds a note the first time.
func (run *runner) reportUnsaveable(unsaveable ...kernelstate.Omission) {
	run.record.Unsaveable = unsaveable[:min(len(unsaveable), maxListed)]
	if run.record.UnsaveableReported {
		return
	}
	run.record.UnsaveableReported = true
	run.addNote("iterations pass on %v, which the relay can't keep on this computer: %s. If the kernel is lost, the run stops and asks how to continue. "+
		"save_kernel_state saves what it can; use on_new_kernel=\"continue\" if the iterations do not depend on each other", run.record.Carried, reasons(unsaveable))
}

// reasons lists the first three omissions for a message.
func reasons(omitted []kernelstate.Omission) string {
	var all []string
	for _, o := range omitted[:min(len(omitted), 3)] {
		if o.Name != "" {
			o.Reason = o.Name + ": " + o.Reason
		}
		all = append(all, o.Reason)
	}
	return strings.Join(all, "; ")
}
