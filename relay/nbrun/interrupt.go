package nbrun

import "context"

// Interrupt interrupts the running cell and cancels those that are queued after it. The next
// Advance records how they ended; the run is interrupted then, and may be continued.
func (r *Run) Interrupt(ctx context.Context, vm VM) error {
	a := &advance{Run: r, vm: vm}
	if err := a.findIDs(ctx, a.flying()); err != nil {
		return err
	}
	return a.stop(ctx, StatusInterrupted, 0)
}
