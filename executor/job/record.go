package job

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"colabrelay/executor/journal"
	"colabrelay/shared/contract"
)

const (
	// maxHeads bounds the step ids in the heads that patches add to a record.
	maxHeads = 50_000
	// maxLines bounds the lines that are saved together, as a line of the journal.
	maxLines = 1_000
)

// line is a line of a job's record: what the job is, or one of its entries. The last one of each counts.
type line struct {
	Head  *head              `json:"job,omitempty"`
	Index int                `json:"i,omitempty"`
	Entry *contract.JobEntry `json:"entry,omitempty"`
}

// head is a job without its entries.
type head struct {
	contract.Job
	SHA256  string   `json:"sha256"`
	StepIDs []string `json:"step_ids"`
	Loop    bool     `json:"loop"`
}

func (j *Job) headLine() line {
	h := head{Job: j.Job, SHA256: j.sha256, Loop: j.hasLoop}
	for i := range j.steps {
		h.StepIDs = append(h.StepIDs, j.steps[i].StepID)
	}
	return line{Head: &h}
}

func (j *Job) entryLine(index int) line {
	e := j.entries[index]
	return line{Index: index, Entry: &e}
}

// writeEntryLocked adds an entry to the record. If that fails, the executions name their job too, so
// that an executor which is started after a kill finds what ran.
func (j *Job) writeEntryLocked(index int) { _ = j.writeLocked(j.entryLine(index)) }

// writeHeadLocked adds the head to the record, or writes that anew.
func (j *Job) writeHeadLocked() error {
	if j.heads += len(j.steps); j.heads > maxHeads && j.rounds() == 0 {
		j.recorded, j.heads, j.unsaved = false, 0, nil
		for i := range j.Next {
			j.unsaved = append(j.unsaved, j.entryLine(i))
		}
		j.unsaved = append([]line{j.headLine()}, j.unsaved...)
		return j.flushLocked()
	}
	return j.writeLocked(j.headLine())
}

// writeLocked adds a line to the record, now or as soon as the disk can take it.
func (j *Job) writeLocked(l line) error {
	late := len(j.unsaved) > 0
	j.unsaved = append(j.unsaved, l)
	err := j.flushLocked()
	if err != nil && !late {
		j.jobs.log.Error("the record of a job could not be saved; saving is retried", "job_id", j.JobID, "err", err)
	}
	return err
}

// flushLocked saves the lines that wait in memory. They are few: without room for them there is none
// for the state of another execution. The error is journal.ErrDiskFull if there is no room.
func (j *Job) flushLocked() error {
	for len(j.unsaved) > 0 {
		n := min(len(j.unsaved), maxLines)
		if !j.recorded { // what replaces the record before it is one line
			n = len(j.unsaved)
		}
		err := j.jobs.cfg.Journal.RecordJob(j.JobID, !j.recorded, j.unsaved[:n])
		switch {
		case errors.Is(err, journal.ErrDiskFull):
			return err
		case err != nil:
			return fmt.Errorf("writing the record of a job: %w", err)
		}
		j.recorded, j.unsaved = true, j.unsaved[n:]
	}
	j.unsaved = nil
	return nil
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

// checkSize checks the size of the code that has not run yet.
func checkSize(steps []step, loop *contract.JobLoop) error {
	size := 0
	for i := range steps {
		size += len(steps[i].Code)
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
		index[steps[i].StepID] = uint16(i)
	}
	for i, s := range added {
		if err := checkStep(s); err != nil {
			return nil, bad("steps[%d].%v", i, err)
		}
		if _, twice := index[s.StepID]; twice {
			return nil, bad("steps[%d].step_id: an earlier step has the same one", i)
		}
		made := step{JobStep: s}
		made.Attempts, made.SkipIfFailed = max(1, s.Attempts), nil
		for _, name := range s.SkipIfFailed {
			at, ok := index[name]
			if !ok {
				return nil, bad("steps[%d].skip_if_failed: no earlier step has the id that it names", i)
			}
			made.skip = append(made.skip, at)
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
