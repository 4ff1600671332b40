// Package variables lists, inspects and deletes the user's variables in a live kernel.
// It leaves no trace in history, In, Out, _ or the execution count, and no name in the
// user's namespace.
//
// It must not run the user's code to inspect an object. The caller must see to it that no
// execution is running, because the kernel would answer only after that. Start reading at
// ask, then at variables/listing.py of shared/kernelpy, which runs in the kernel.
package variables

import (
	"context"
	"errors"

	"colabrelay/executor/jupyter"
	"colabrelay/shared/contract"
)

// ErrNoVariable means that the namespace does not have the name.
var ErrNoVariable = errors.New("no such variable")

// Variables lists the variables that the user made, without IPython's own, modules, and
// names that begin with an underscore. It counts all of them and describes the first 1,000
// by name. The caller sets KernelID.
func Variables(ctx context.Context, client *jupyter.Client) (contract.Variables, error) {
	var answer contract.Variables
	err := ask(ctx, client, &answer, "variables.listing.variables")
	return answer, err
}

// Inspect describes one variable, with a preview of at most 4 KiB. It accepts any name in
// the namespace, including those that Variables omits. The error is ErrNoVariable if the
// namespace does not have the name. The caller sets KernelID.
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

// Cleanup deletes what Variables lists, clears Out, _, __, ___ and the last exception,
// closes matplotlib's figures, collects garbage and empties torch's GPU cache. It imports
// no library. Chunked runs run their setup code again after it. The answer names at most
// 1,000 variables. The caller sets KernelID and the memory.
func Cleanup(ctx context.Context, client *jupyter.Client) (contract.Cleanup, error) {
	var answer contract.Cleanup
	err := ask(ctx, client, &answer, "cleanup.cleanup")
	return answer, err
}
