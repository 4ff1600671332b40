package dataflow

import (
	"context"
	"errors"
	"io"
	"time"

	"colabrelay/shared/contract"
)

// VM is what Analyse needs of a *client.Client.
type VM interface {
	Submit(ctx context.Context, s contract.Submit) (contract.Execution, error)
	Execution(ctx context.Context, id string, offset int64, wait time.Duration, maxBytes int64) (contract.Execution, error)
	Interrupt(ctx context.Context, id string) (contract.Execution, error)
	Blob(ctx context.Context, id string, blob contract.Blob, w io.Writer) error
	InstanceID() string
}

// Analyse returns the facts of each source, in their order. They are read in the kernel, which
// must be free before ctx ends; the sources are parsed and not run. Without an answer the
// error says so, and nothing is known of any cell.
func Analyse(ctx context.Context, vm VM, sources []string) ([]Facts, error) {
	return nil, errors.New("not yet written")
}
