package colabapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"colabrelay/relay/vm"
)

const (
	// waitStep is how long one call waits for an Operation; the server may answer earlier.
	waitStep = 60 * time.Second
	// waitLimit bounds the wait for a VM. Others saw 3 to 4 seconds (unverified).
	waitLimit = 5 * time.Minute
	// waitPause keeps calls apart when the server does not wait.
	waitPause = time.Second
)

// operation is google.longrunning.Operation.
type operation struct {
	Name  string     `json:"name"`
	Done  bool       `json:"done"`
	Error *rpcStatus `json:"error"`
}

var operationPattern = regexp.MustCompile(`^operations/[A-Za-z0-9._-]{1,200}$`)

// wait waits until a VM was started or refused.
func (b *Backend) wait(ctx context.Context, op operation, accelerator string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, waitLimit, fmt.Errorf("start a VM: Google did not finish in %s: `colab-relay vm list` shows whether it comes", waitLimit))
	defer cancel()
	suffix := ":wait"
	for !op.Done {
		name := op.Name
		if !operationPattern.MatchString(name) || strings.Contains(name, "..") {
			return errors.New("start a VM: Google's answer names no operation to wait for")
		}
		c := call{doing: "wait for the VM", method: http.MethodGet, path: "/v1/" + name + suffix}
		if suffix != "" {
			c.query, c.wait = url.Values{"timeout": {fmt.Sprintf("%.0fs", waitStep.Seconds())}}, waitStep
		}
		op = operation{}
		_, err := b.do(ctx, c, &op)
		switch {
		case errors.Is(err, errUnimplemented) && suffix != "":
			suffix = "" // a plain look instead
		case err != nil && ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return err
		}
		if op.Name == "" {
			op.Name = name
		}
		if !op.Done {
			if err := pauseFor(ctx, waitPause); err != nil {
				return err
			}
		}
	}
	if op.Error != nil {
		return fmt.Errorf("start a VM: %w", op.Error.refused(accelerator))
	}
	return nil
}

// refusedSpec makes a refused request for an accelerator the next accelerator's turn. Whether
// Google refuses one like this, and not by an Operation, is unverified.
func refusedSpec(err error, key specKey) error {
	switch {
	case key.Accelerator == noAccelerator:
		return err
	case errors.Is(err, errInvalidArgument):
		return fmt.Errorf("%w: %v", vm.ErrNotEligible, err)
	case errors.Is(err, errPrecondition):
		return fmt.Errorf("%w: %v", vm.ErrNoneFree, err)
	}
	return err
}

// pauseFor waits for d or until ctx ends.
func pauseFor(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
