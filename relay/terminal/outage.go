package terminal

import (
	"fmt"
	"io"
	"sync"
	"time"

	"colabrelay/relay/plain"
)

// QuietTime is how long an outage lasts before it is shown to a person: the relay
// retries, and most outages end sooner.
const QuietTime = 2 * time.Second

// Outage writes to a stream that the VM does not answer, once that has lasted longer
// than QuietTime, and later that it answers again.
type Outage struct {
	Out io.Writer

	mu       sync.Mutex
	since    time.Time // of the first failure in a row; zero after a success
	reported bool
}

// Attempt takes the outcome of an attempt to reach the VM; it fits client.Config.
func (o *Outage) Attempt(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case err == nil:
		if o.reported {
			fmt.Fprintln(o.Out, "colab-relay: the VM answers again")
		}
		o.since, o.reported = time.Time{}, false
	case o.since.IsZero():
		o.since = time.Now()
	case !o.reported && time.Since(o.since) > QuietTime:
		o.reported = true
		fmt.Fprintf(o.Out, "colab-relay: waiting for the VM; code that has started there keeps running: %s\n", plain.Line(err.Error()))
	}
}
