package job

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"colabrelay/executor/journal"
	"colabrelay/shared/contract"
)

const (
	// maxUnsaved bounds the lines that wait in memory while the disk is full. With more, the job
	// waits. The executions name their job too, so that an executor which is started after a kill
	// finds what these lines would have said of them.
	maxUnsaved = 500
	// maxPatched bounds the patches in a record, in steps: MaxJobPatches of MaxJobSteps would have
	// 200 MB.
	maxPatched = 50_000
)

// line is a line of a job's record: the first one has what the job is, each other one what
// happened to one of its entries, a patch, or the end.
type line struct {
	JobID    string            `json:"job_id,omitempty"`
	SHA256   string            `json:"sha256,omitempty"`
	Created  *time.Time        `json:"created_at,omitempty"`
	Steps    []string          `json:"steps,omitempty"` // ids
	Loop     bool              `json:"loop,omitempty"`
	Revision int               `json:"revision,omitempty"`
	Patches  map[string]string `json:"patches,omitempty"`

	Index     *int                `json:"i,omitempty"`
	Execution string              `json:"x,omitempty"` // that began for the entry
	KernelID  string              `json:"k,omitempty"` // the job's, once it is bound to one
	Status    contract.StepStatus `json:"s,omitempty"` // how it ended

	Patch *patchLine `json:"patch,omitempty"`
	End   *endLine   `json:"end,omitempty"`
}

// patchLine replaces the steps from index At on.
type patchLine struct {
	ID     string   `json:"id"`
	SHA256 string   `json:"sha256"`
	At     int      `json:"at"`
	Steps  []string `json:"steps"`
}

type endLine struct {
	State    contract.JobState `json:"state"`
	Cause    contract.JobCause `json:"cause,omitempty"`
	Reason   string            `json:"reason,omitempty"`
	Finished time.Time         `json:"finished_at"`
}

func (j *Job) endLine() *endLine {
	return &endLine{State: j.state, Cause: j.cause, Reason: j.reason, Finished: *j.finished}
}

func (j *Job) head() line {
	h := line{JobID: j.id, SHA256: j.sha256, KernelID: j.kernelID, Created: &j.created, Loop: j.hasLoop, Revision: j.revision, Patches: j.patches}
	for i := range j.steps {
		h.Steps = append(h.Steps, j.steps[i].id)
	}
	return h
}

// record adds a line to the job's record, now or as soon as the disk can take it.
func (j *Job) record(l line) {
	late := len(j.unsaved) > 0
	j.unsaved = append(j.unsaved, l)
	if err := j.flush(); err != nil && !late {
		j.jobs.log.Error("the record of a job could not be saved; saving is retried", "job_id", j.id, "err", err)
	}
}

// recordNow adds a line, or fails. The error is journal.ErrDiskFull if the disk has no room.
func (j *Job) recordNow(l line) error {
	before := len(j.unsaved)
	j.unsaved = append(j.unsaved, l)
	err := j.flush()
	if err != nil {
		j.unsaved = j.unsaved[:before]
	}
	return err
}

// flush writes the lines that wait in memory.
func (j *Job) flush() error {
	if len(j.unsaved) == 0 {
		return nil
	}
	err := j.jobs.cfg.Journal.RecordJob(j.id, j.unsaved[0].JobID != "", j.unsaved)
	switch {
	case err == nil:
		j.unsaved = nil
	case !errors.Is(err, journal.ErrDiskFull):
		err = fmt.Errorf("writing the record of a job: %w", err)
	}
	return err
}

// ready returns an error if too many lines wait in memory.
func (j *Job) ready() error {
	err := j.flush()
	if len(j.unsaved) <= maxUnsaved {
		return nil
	}
	return fmt.Errorf("the job's record can't be saved: %w", err)
}

// recordAgainLocked writes the whole record anew. No round has begun.
func (j *Job) recordAgainLocked() error {
	whole := []line{j.head()}
	for i := range j.next {
		e, index := j.entryLocked(i), i
		for _, begun := range append(slices.Clone(e.Earlier), e.ExecutionID) {
			if begun != "" {
				whole = append(whole, line{Index: &index, Execution: begun})
			}
		}
		if contract.Status(e.Status).Finished() {
			whole = append(whole, line{Index: &index, Status: e.Status})
		}
	}
	err := j.jobs.cfg.Journal.RecordJob(j.id, true, whole)
	if err == nil {
		j.unsaved, j.patched = nil, 0
	}
	return err
}

// digest identifies the content of a job or a patch.
func digest(v any) string {
	raw, _ := json.Marshal(v) // has only texts and numbers, which check has seen
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

func bad(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrBad, fmt.Sprintf(format, args...))
}

func tooLarge(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrTooLarge, fmt.Sprintf(format, args...))
}

// check checks a job against the contract's bounds, and returns its steps.
func check(s contract.JobSubmit) ([]step, error) {
	if !contract.JobIDPattern().MatchString(s.JobID) {
		return nil, bad("job_id: must be 1 to %d characters of A-Z a-z 0-9 -", contract.MaxJobIDLen)
	}
	if len(s.KernelID) > contract.MaxKernelIDLen {
		return nil, bad("kernel_id: must have at most %d bytes", contract.MaxKernelIDLen)
	}
	if len(s.Steps) == 0 && s.Loop == nil {
		return nil, bad("it has neither steps nor a loop")
	}
	steps, err := plan(nil, s.Steps)
	if err == nil && s.Loop != nil {
		err = checkLoop(*s.Loop)
	}
	if err != nil {
		return nil, err
	}
	return steps, checkSize(steps, s.Loop)
}

// checkSize checks the number of steps and the size of the code that has not run yet.
func checkSize(steps []step, loop *contract.JobLoop) error {
	if len(steps) > contract.MaxJobSteps {
		return tooLarge("%d steps, and at most %d are accepted", len(steps), contract.MaxJobSteps)
	}
	size := 0
	for i := range steps {
		size += len(steps[i].code)
	}
	if loop != nil {
		size += len(loop.Code)
	}
	if size > contract.MaxJobCode {
		return tooLarge("%.2f MiB of code, and at most %d MiB are accepted", float64(size)/(1<<20), contract.MaxJobCode>>20)
	}
	return nil
}

// plan returns the steps before, which stay, and after them those of added.
func plan(before []step, added []contract.JobStep) ([]step, error) {
	if n := len(before) + len(added); n > contract.MaxJobSteps {
		return nil, tooLarge("%d steps, and at most %d are accepted", n, contract.MaxJobSteps)
	}
	steps := append(make([]step, 0, len(before)+len(added)), before...)
	index := make(map[string]uint16, cap(steps))
	for i := range steps {
		index[steps[i].id] = uint16(i)
	}
	for i, s := range added {
		if err := checkStep(s); err != nil {
			return nil, bad("steps[%d].%v", i, err)
		}
		if _, twice := index[s.StepID]; twice {
			return nil, bad("steps[%d].step_id: an earlier step has the same one", i)
		}
		made := step{
			id: s.StepID, name: s.SourceName, code: s.Code, timeout: s.TimeoutSeconds, unstored: s.Unstored,
			mayFail: s.MayFail, attempts: max(1, s.Attempts), status: contract.StepWaits,
		}
		seen := make(map[uint16]bool, len(s.SkipIfFailed))
		for _, name := range s.SkipIfFailed {
			at, ok := index[name]
			if !ok {
				return nil, bad("steps[%d].skip_if_failed: no earlier step has the id that it names", i)
			}
			if !seen[at] {
				seen[at] = true
				made.skip = append(made.skip, at)
			}
		}
		index[s.StepID] = uint16(len(steps))
		steps = append(steps, made)
	}
	return steps, nil
}

// checkStep names the wrong field.
func checkStep(s contract.JobStep) error {
	if !contract.StepIDPattern().MatchString(s.StepID) {
		return fmt.Errorf("step_id: must be 1 to %d characters of A-Z a-z 0-9 . _ -", contract.MaxStepIDLen)
	}
	if len(s.SourceName) > contract.MaxSourceName {
		return fmt.Errorf("source_name: must have at most %d bytes", contract.MaxSourceName)
	}
	if s.Attempts < 0 || s.Attempts > contract.MaxJobAttempts {
		return fmt.Errorf("attempts: must be a number from 0 to %d", contract.MaxJobAttempts)
	}
	return checkCode(s.Code, s.TimeoutSeconds)
}

func checkCode(code string, timeout float64) error {
	if strings.TrimSpace(code) == "" {
		return fmt.Errorf("code: must not be empty")
	}
	if strings.ContainsRune(code, 0) {
		return fmt.Errorf("code: contains a NUL character, which Python does not accept")
	}
	if !(timeout >= 0 && timeout <= contract.MaxTimeout.Seconds()) {
		return fmt.Errorf("timeout_seconds: must be a number from 0 to %g", contract.MaxTimeout.Seconds())
	}
	return nil
}

func checkLoop(l contract.JobLoop) error {
	switch {
	case strings.TrimSpace(l.Again) == "":
		return bad("loop.again: must not be empty")
	case len(l.Again) > maxAgain:
		return bad("loop.again: must have at most %d bytes", maxAgain)
	case strings.ContainsRune(l.Again, 0):
		return bad("loop.again: contains a NUL character, which Python does not accept")
	case l.MaxRounds < 1 || l.MaxRounds > contract.MaxJobRounds:
		return bad("loop.max_rounds: must be a number from 1 to %d", contract.MaxJobRounds)
	}
	if err := checkCode(l.Code, l.TimeoutSeconds); err != nil {
		return bad("loop.%v", err)
	}
	return nil
}

// maxAgain bounds a loop's Again, in bytes.
const maxAgain = 4 << 10
