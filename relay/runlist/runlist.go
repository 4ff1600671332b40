// Package runlist knows which runs there are: those in this laptop's history, and those that
// VMs list. It finds, merges and selects them; it must not read files or print.
//
// Start reading at Merge, Selection and Listed.
package runlist

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/history"
	"colabrelay/relay/plain"
	"colabrelay/shared/contract"
	"colabrelay/shared/lazy"
)

// VM is what one VM lists.
type VM struct {
	Runtime    string // the name of the pairing
	InstanceID string
	Executions []contract.Execution
}

// Entry is one run. Its JSON has the field names of list_executions, and more.
type Entry struct {
	ExecutionID      string    `json:"execution_id"`
	RequestID        string    `json:"request_id"`
	Status           string    `json:"status"`
	CreatedAt        time.Time `json:"created_at"`
	ExecutionTimeSec *float64  `json:"execution_time_sec"` // null before the start, and if it is unknown
	CodePreview      string    `json:"code_preview"`       // not cleaned: code of the person or the agent
	Name             string    `json:"name,omitempty"`     // of the code, such as its file's or that of a notebook's cell
	Runtime          string    `json:"runtime"`
	InstanceID       string    `json:"instance_id"`
	OnVM             bool      `json:"on_vm"` // the VM answered and lists it
	Kept             bool      `json:"kept"`  // it is in the history
	Internal         bool      `json:"internal,omitempty"`
}

// Unsure reports whether the status is only the last one that was seen.
func (e *Entry) Unsure() bool { return !e.OnVM && !contract.Status(e.Status).Finished() }

// Merge returns all runs, newest first. Of a run that is in both, the VM knows the status. An
// executor whose state folder was deleted has a new instance id, and still its old runs.
func Merge(kept []history.Run, vms []VM, now time.Time) []Entry {
	type key struct{ instance, id string }
	live := map[key]contract.Execution{}
	renamed := map[key]key{} // by the runtime in place of the instance
	for _, vm := range vms {
		for _, e := range vm.Executions {
			at := key{vm.InstanceID, e.ExecutionID}
			live[at], renamed[key{vm.Runtime, e.ExecutionID}] = e, at
		}
	}
	var all []Entry
	for _, run := range kept {
		at := key{run.InstanceID, run.ExecutionID}
		if _, known := live[at]; !known {
			at = renamed[key{run.Runtime, run.ExecutionID}]
		}
		e, onVM := live[at]
		delete(live, at)
		if !onVM || run.Status.Finished() {
			e = run.Execution
		}
		entry := entryOf(e, run.Runtime, run.InstanceID, now)
		entry.CreatedAt, entry.Name, entry.Internal, entry.Kept, entry.OnVM = run.Recorded, run.Name, run.Internal, true, onVM
		entry.CodePreview = preview(run.Code)
		if entry.Unsure() {
			entry.ExecutionTimeSec = nil
		}
		all = append(all, entry)
	}
	for _, vm := range vms {
		for _, e := range vm.Executions {
			at := key{vm.InstanceID, e.ExecutionID}
			if _, alone := live[at]; !alone {
				continue
			}
			delete(live, at) // two names may be paired with one VM
			entry := entryOf(e, vm.Runtime, vm.InstanceID, now)
			entry.OnVM, entry.Internal, entry.CodePreview, entry.Name = true, IsInternal(e.CodePreview), preview(e.CodePreview), preview(e.SourceName)
			all = append(all, entry)
		}
	}
	slices.SortStableFunc(all, func(a, b Entry) int { return b.CreatedAt.Compare(a.CreatedAt) })
	return all
}

func entryOf(e contract.Execution, runtime, instance string, now time.Time) Entry {
	entry := Entry{ExecutionID: e.ExecutionID, RequestID: e.RequestID, Status: string(e.Status), CreatedAt: e.CreatedAt, Runtime: runtime, InstanceID: instance}
	if e.StartedAt != nil {
		end := now
		if e.FinishedAt != nil {
			end = *e.FinishedAt
		}
		seconds := max(0, end.Sub(*e.StartedAt).Round(time.Millisecond).Seconds())
		entry.ExecutionTimeSec = &seconds
	}
	return entry
}

// preview returns the first line of code that is not blank, at most
// contract.CodePreviewRunes long.
func preview(code string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(code[:min(len(code), 16<<10)]), "\n")
	if runes := []rune(line); len(runes) > contract.CodePreviewRunes {
		line = string(runes[:contract.CodePreviewRunes-1]) + "…"
	}
	return strings.TrimSpace(line)
}

// IsInternal reports whether code that a VM lists is of a relay's own, whose first line is a
// title.
func IsInternal(code string) bool {
	return IsMachinery(code) || strings.HasPrefix(code, "# chunked run \"")
}

// IsMachinery reports whether code that a VM lists serves the relay alone. A round of a chunked
// run does not: it runs code that somebody gave.
func IsMachinery(code string) bool { return strings.HasPrefix(code, "# colab-relay: ") }

// batchOf finds which chunked run a step or round is of.
var batchOf = lazy.Regexp(`^# chunked run "[^\n]*": `)

// WithoutInternal returns what is listed of the entries, the newest of which come first: nothing of
// the relay's own, and no round of a chunked run that succeeded before another one. Whatever has not
// ended is listed: it has the kernel, or waits for it.
func WithoutInternal(all []Entry) (listed []Entry) {
	seen := map[string]bool{}
	for _, e := range all {
		status, batch := contract.Status(e.Status), batchOf().FindString(e.CodePreview)
		earlier := seen[e.Runtime+batch] && status == contract.StatusSucceeded
		if !status.Finished() || !IsMachinery(e.CodePreview) && !earlier {
			listed = append(listed, e)
			seen[e.Runtime+batch] = batch != ""
		}
	}
	return listed
}

// OfRuntime returns the runs of one runtime, or all if name is empty.
func OfRuntime(runs []history.Run, name string) []history.Run {
	return slices.DeleteFunc(slices.Clone(runs), func(r history.Run) bool { return name != "" && r.Runtime != name })
}

// Selection says which runs of the history are wanted. Without any field, it means those of the
// VM that Runtime was paired with last.
type Selection struct {
	IDs     []string // exactly these, of any runtime
	Runtime string   // empty means that of the newest run
	Last    int      // the newest so many, of all VMs of the runtime; 0 for no limit
	Since   time.Time
}

// Choose returns the selected runs, oldest first. Runs of the relay's own code are selected
// only by their ids.
func (s Selection) Choose(newestFirst []history.Run) (chosen []history.Run) {
	if len(s.IDs) > 0 {
		chosen = slices.DeleteFunc(slices.Clone(newestFirst), func(r history.Run) bool { return !slices.Contains(s.IDs, r.ExecutionID) })
		slices.Reverse(chosen)
		return chosen
	}
	for _, r := range newestFirst {
		s.Runtime = cmp.Or(s.Runtime, r.Runtime)
		switch {
		case r.Internal || r.Runtime != s.Runtime:
			continue
		case s.Last > 0 && len(chosen) == s.Last, r.Recorded.Before(s.Since):
			continue
		case s.Last == 0 && s.Since.IsZero() && len(chosen) > 0 && chosen[0].InstanceID != r.InstanceID:
			continue
		}
		chosen = append(chosen, r)
	}
	slices.Reverse(chosen)
	return chosen
}

// Errors about runs. ErrNoSuchRun is always a *NoSuchRunError.
var (
	ErrNoSuchRun    = errors.New("no such run")
	ErrAmbiguous    = errors.New("several runs begin with that id")
	ErrNoneRuns     = errors.New("the VM is not running anything; `colab-relay ps` lists the runs: name one by its id")
	ErrStillRunning = errors.New("the run is still running on the VM")
)

// NoSuchRunError says that no run has the id, or one that begins with it.
type NoSuchRunError struct{ ID string }

func (e *NoSuchRunError) Error() string { return fmt.Sprintf("%v %.60q", ErrNoSuchRun, e.ID) }

// Unwrap returns ErrNoSuchRun.
func (e *NoSuchRunError) Unwrap() error { return ErrNoSuchRun }

// maxAmbiguous bounds the runs that are named if an id is the beginning of several.
const maxAmbiguous = 10

// Find returns the run with the id prefix, or else the one whose id begins with it.
func Find(runs []contract.Execution, prefix string) (contract.Execution, error) {
	var found []contract.Execution
	for _, e := range runs {
		if e.ExecutionID == prefix {
			return e, nil
		}
		if prefix != "" && strings.HasPrefix(e.ExecutionID, prefix) {
			found = append(found, e)
		}
	}
	switch len(found) {
	case 0:
		return contract.Execution{}, &NoSuchRunError{prefix}
	case 1:
		return found[0], nil
	}
	var b strings.Builder
	for i, e := range found {
		if i == maxAmbiguous {
			fmt.Fprintf(&b, "\n  and %d more", len(found)-i)
			break
		}
		fmt.Fprintf(&b, "\n  %s  %s  %s", plain.Clip(e.ExecutionID, maxID), plain.Clip(string(e.Status), maxID), plain.Quote(plain.Line(e.CodePreview)))
	}
	return contract.Execution{}, fmt.Errorf("%w, %.60q:%s", ErrAmbiguous, prefix, b.String())
}

// Kept returns the run of the history whose id begins with prefix, or the newest that is not the
// relay's own without one, of a runtime or of any if that is empty.
func Kept(store *history.Store, prefix, runtime string) (history.Run, error) {
	runs, err := store.List()
	if err != nil {
		return history.Run{}, err
	}
	runs = OfRuntime(runs, runtime)
	if prefix == "" {
		if at := slices.IndexFunc(runs, func(r history.Run) bool { return !r.Internal }); at >= 0 {
			return runs[at], nil
		}
		return history.Run{}, history.ErrNotFound
	}
	executions := make([]contract.Execution, len(runs))
	for i, run := range runs {
		executions[i] = run.Execution
	}
	e, err := Find(executions, prefix)
	if err != nil {
		return history.Run{}, err
	}
	return runs[slices.IndexFunc(runs, func(r history.Run) bool { return r.ExecutionID == e.ExecutionID })], nil
}

const (
	// WholeID is how long the id of an execution is, a UUID.
	WholeID = 36
	maxID   = 128 // characters of an id that somebody else made
)

// Listed returns the run of a VM whose id begins with prefix, or without one the run that has the
// kernel. A whole id may be older than the runs that the VM lists; of such a run, Events is not nil.
func Listed(ctx context.Context, vm *client.Client, prefix string) (contract.Execution, error) {
	if prefix == "" {
		return first(ctx, vm, ErrNoneRuns, func(e contract.Execution) bool {
			return e.Status == contract.StatusRunning || e.Status == contract.StatusWaitingForInput
		})
	}
	list, err := vm.List(ctx, contract.MaxListExecutions)
	if err != nil {
		return contract.Execution{}, err
	}
	e, err := Find(list.Executions, prefix)
	if !errors.Is(err, ErrNoSuchRun) || len(prefix) != WholeID {
		return e, err
	}
	e, unlisted := vm.Execution(ctx, prefix, 0, 0, 1)
	if contract.CodeOf(unlisted) == contract.CodeNotFound {
		return contract.Execution{}, err
	}
	return e, unlisted
}

// Newest returns the run of a VM that was submitted last, of those that are not the relay's own.
func Newest(ctx context.Context, vm *client.Client) (contract.Execution, error) {
	return first(ctx, vm, errors.New("the VM has no runs yet"), func(e contract.Execution) bool { return !IsInternal(e.CodePreview) })
}

func first(ctx context.Context, vm *client.Client, none error, wanted func(contract.Execution) bool) (contract.Execution, error) {
	list, err := vm.List(ctx, contract.MaxListExecutions)
	if err != nil {
		return contract.Execution{}, err
	}
	if at := slices.IndexFunc(list.Executions, wanted); at >= 0 {
		return list.Executions[at], nil
	}
	return contract.Execution{}, none
}
