package runlist

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"colabrelay/relay/client"
	"colabrelay/relay/plain"
	"colabrelay/shared/contract"
)

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
