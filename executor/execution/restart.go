package execution

import (
	"strings"
	"time"

	"colabrelay/executor/jupyter"
	"colabrelay/shared/contract"
)

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
