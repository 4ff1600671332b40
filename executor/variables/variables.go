// Package variables asks a live kernel about the user's variables, and clears
// them, without leaving a trace: no history, no In or Out, no _, no execution
// count, no name of ours.
//
// It must not run the user's code to look at an object, and must not ask while a
// run holds the kernel: the caller sees to that, since the kernel would answer
// only after the run. Start reading at ask, then at variables/listing.py of
// shared/kernelpy, which is what runs in the kernel.
package variables

import (
	"context"
	"errors"

	"colabrelay/executor/jupyter"
	"colabrelay/shared/contract"
)

// ErrNoVariable says that the namespace has no such name.
var ErrNoVariable = errors.New("no such variable")

// Variables lists what the user made: no names of IPython's own, no modules,
// none that begin with an underscore. It describes the first 1,000 by name and
// counts all. KernelID is left to the caller.
func Variables(ctx context.Context, client *jupyter.Client) (contract.Variables, error) {
	var answer contract.Variables
	err := ask(ctx, client, &answer, "variables.listing.variables")
	return answer, err
}

// Inspect describes one variable, with a preview of at most 4 KiB. Any name in
// the namespace will do, also those that Variables leaves out. It gives
// ErrNoVariable where there is none. KernelID is left to the caller.
func Inspect(ctx context.Context, client *jupyter.Client, name string) (contract.Inspection, error) {
	var answer struct {
		contract.Inspection
		Missing bool `json:"missing"`
	}
	if err := ask(ctx, client, &answer, "variables.listing.inspect", name); err != nil {
		return contract.Inspection{}, err
	}
	if answer.Missing {
		return contract.Inspection{}, ErrNoVariable
	}
	return answer.Inspection, nil
}

// Cleanup deletes what Variables lists, clears Out, _, __ and ___, and the
// exception kept for post-mortems, closes matplotlib's figures, collects garbage
// and empties torch's GPU cache, each library only where it is imported already.
// Chunked runs then run their set-up code again.
// At most 1,000 names are told. KernelID and the memory are left to the caller.
func Cleanup(ctx context.Context, client *jupyter.Client) (contract.Cleanup, error) {
	var answer contract.Cleanup
	err := ask(ctx, client, &answer, "cleanup.cleanup")
	return answer, err
}
