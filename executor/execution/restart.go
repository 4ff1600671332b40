package execution

import (
	"strings"
	"time"

	"colabrelay/executor/jupyter"
	"colabrelay/shared/contract"
)

// restartReason is why an execution ended as kernel_restarted.
const restartReason = "someone restarted the kernel while this ran; its variables are gone"

// sentByRestart reports whether the kernel sent m after a restart began to end it. The
// kernel's own time tells: what waits in the inbox since before is the code's doing.
func (r *runner) sentByRestart(m *jupyter.Message) bool {
	began := r.life.RestartBegan()
	if began.IsZero() {
		return false
	}
	sent, err := time.Parse(time.RFC3339Nano, m.Header.Date)
	return err != nil || sent.After(began)
}

// restartsDoing reports whether m shows what a restart did rather than what the code
// did. Such are errors: the KeyboardInterrupt, or what code makes of it and of the
// processes that the interrupt ended too. And such are markers of the relay's own
// code: an iteration that was cut short and caught the interrupt is not done. What else
// they confirm runs again in the next kernel, as after any loss of one.
func (r *runner) restartsDoing(m *jupyter.Message) bool {
	switch m.Header.MsgType {
	case jupyter.MsgError:
		return r.sentByRestart(m)
	case jupyter.MsgDisplayData:
		var d jupyter.DisplayData
		return r.sentByRestart(m) && m.Decode(&d) == nil && own(d)
	}
	return false
}

// own reports whether a display is one that the relay's own code speaks to it by.
func own(d jupyter.DisplayData) bool {
	for mime := range d.Data {
		if strings.HasPrefix(mime, contract.OwnMIME) {
			return true
		}
	}
	return false
}
