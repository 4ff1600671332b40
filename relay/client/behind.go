package client

import (
	"context"
	"strings"

	"colabrelay/relay/plain"
	"colabrelay/shared/contract"
)

type behindInputKey struct{}

// WithBehindInput makes reads of executions return as soon as the execution is queued behind
// one that waits for input, as Submit.BehindInput does for a submit. A caller that goes on
// reading then must use another context, or its reads follow each other without a pause.
func WithBehindInput(ctx context.Context) context.Context {
	return context.WithValue(ctx, behindInputKey{}, true)
}

// BehindInput returns the run that waits for input while e is queued behind it; nil for none.
func BehindInput(e contract.Execution) *contract.Behind {
	return WaitsForInput(Behind(e))
}

// Behind returns the run that has the kernel while e is queued; nil for none.
func Behind(e contract.Execution) *contract.Behind {
	if e.Status != contract.StatusQueued || e.Behind == nil || !validID(e.Behind.ExecutionID) {
		return nil
	}
	return e.Behind
}

// WaitsForInput returns b if that run waits for input and its id is one that an executor may
// have created, so that it can stand in a command; otherwise nil.
func WaitsForInput(b *contract.Behind) *contract.Behind {
	if b == nil || b.Status != contract.StatusWaitingForInput || !validID(b.ExecutionID) {
		return nil
	}
	return b
}

// validID reports whether an executor may have created the id.
func validID(id string) bool {
	return contract.RequestIDPattern.MatchString(id) && strings.Trim(id, ".") != ""
}

// promptLine is a prompt as one plain line. An executor may send more than the contract allows.
func promptLine(s string) string {
	if len(s) > contract.MaxBehindPrompt {
		s = strings.ToValidUTF8(s[:contract.MaxBehindPrompt], "") + "…"
	}
	return plain.Line(s)
}
