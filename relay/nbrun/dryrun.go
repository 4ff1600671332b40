package nbrun

import "context"

// dryRun makes the plan and submits no cell.
func (a *advance) dryRun(ctx context.Context) (Outcome, error) { return Outcome{}, nil }
