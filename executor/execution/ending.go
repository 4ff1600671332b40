package execution

import (
	"context"
	"strings"
	"time"

	"colabrelay/executor/jupyter"
	"colabrelay/shared/contract"
)

const (
	// drainQuiet without a message ends the reading of what a dead kernel had sent.
	drainQuiet = 100 * time.Millisecond
	drainTime  = 2 * time.Second
	// stopTime bounds the wait for the running execution at shutdown.
	stopTime = 4 * time.Second
)

// died ends all executions that depended on the kernel. What is submitted while the kernel's
// last output is read waits for the next kernel.
func (r *runner) died(ctx context.Context) {
	r.q.cancelAll("the kernel ended before this started (" + r.kernel.Reason() + "); its variables are gone")
	r.drain(ctx)
	if r.current != nil {
		if !r.current.ended {
			r.end(r.deathOutcome())
		}
		r.release()
	}
}

// deathOutcome is how the running execution ends with the kernel.
func (r *runner) deathOutcome() (contract.Status, string) {
	switch {
	case !r.kernel.RestartBegan().IsZero():
		return contract.StatusKernelRestarted, restartReason
	case r.kernel.EndedOnRequest():
		return contract.StatusInterrupted, r.kernel.Reason()
	}
	return contract.StatusKernelDied, "the kernel died: " + r.kernel.Reason() + "; its variables are gone"
}

// drain handles what the kernel had sent before it died.
func (r *runner) drain(ctx context.Context) {
	limit := time.NewTimer(drainTime)
	defer limit.Stop()
	quiet := time.NewTimer(drainQuiet)
	defer quiet.Stop()
	for {
		quiet.Reset(drainQuiet)
		select {
		case <-r.kernel.Client.Arrived():
			r.receive(ctx)
		case <-quiet.C:
			return
		case <-limit.C:
			return
		}
	}
}

// stop interrupts the running execution because the executor shuts down, and waits up
// to stopTime for its end.
func (r *runner) stop() {
	r.q.close()
	if r.current == nil || r.current.ended {
		return
	}
	r.current.interrupt(causeShutdown, time.Now())
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for r.current != nil {
		r.tick(time.Now())
		timer.Reset(r.untilDue())
		select {
		case <-r.kernel.Client.Arrived():
			r.receive(ctx)
		case <-timer.C:
		case <-r.kernel.Done():
			r.drain(ctx)
			cancel()
		case <-ctx.Done():
			if r.current != nil {
				r.end(contract.StatusInterrupted, causeShutdown.reason())
				r.release()
			}
		}
	}
}

// restartReason is the reason of an execution that ended as kernel_restarted.
const restartReason = "someone restarted the kernel while this was running; its variables are gone"

// sentAfterRestart reports whether the kernel sent m after a restart began to end it.
// The kernel's own time decides, because m may have waited in the inbox.
func (r *runner) sentAfterRestart(m *jupyter.Message) bool {
	began := r.kernel.RestartBegan()
	if began.IsZero() {
		return false
	}
	sent, err := time.Parse(time.RFC3339Nano, m.Header.Date)
	return err != nil || sent.After(began)
}

// causedByRestart reports whether m shows an effect of the restart rather than of the
// code. Errors do: the KeyboardInterrupt, or what the code makes of it and of the
// processes that the interrupt ended too. So do markers of the relay's own code: an
// iteration that caught the interrupt is not done. All that it confirms later runs
// again in the next kernel, as after any loss of a kernel.
func (r *runner) causedByRestart(m *jupyter.Message) bool {
	switch m.Header.MsgType {
	case jupyter.MsgError:
		return r.sentAfterRestart(m)
	case jupyter.MsgDisplayData:
		var d jupyter.DisplayData
		return r.sentAfterRestart(m) && m.Decode(&d) == nil && isMarker(d)
	}
	return false
}

// isMarker reports whether the relay's own code sent the display to the relay.
func isMarker(d jupyter.DisplayData) bool {
	for mime := range d.Data {
		if strings.HasPrefix(mime, contract.OwnMIME) {
			return true
		}
	}
	return false
}
