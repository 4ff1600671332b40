package op

import (
	"math"
	"sync"
	"time"

	"colabrelay/relay/plain"
)

// When calls warn that the VM will end.
const (
	nearEnd = 30 * time.Minute
	// repeatWarning keeps the last half hour from showing the warning in every answer.
	repeatWarning = 5 * time.Minute
)

// vmEnds remembers, for each runtime, when its VM is expected to end. The zero value is
// ready to use.
type vmEnds struct {
	mu   sync.Mutex
	last map[string]vmEnd // by runtime; there are as many as pairings
}

// vmEnd is the expected end of one VM.
type vmEnd struct {
	instance string // a new VM behind the same name ends at another time
	ends     time.Time
	warned   time.Time // when a call last warned
}

// left returns the minutes until the end by the newest estimate, at least 0, and whether the call
// should warn now; nil if there is no estimate. fresh is a new one, or nil.
func (v *vmEnds) left(runtime, instance string, fresh *float64, now time.Time) (minutes *float64, warn bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	known := v.last[runtime]
	if known.instance != instance {
		known = vmEnd{instance: instance}
	}
	if fresh != nil {
		known.ends = now.Add(time.Duration(*fresh * float64(time.Minute)))
	}
	if known.ends.IsZero() {
		return nil, false
	}
	rest := known.ends.Sub(now)
	if warn = rest < nearEnd && now.Sub(known.warned) >= repeatWarning; warn {
		known.warned = now
	}
	if v.last == nil {
		v.last = map[string]vmEnd{}
	}
	v.last[runtime] = known
	return round(max(0, rest.Minutes()), 10), warn
}

// warnOfEnd warns if the VM or its executor will end soon. left is an execution's
// session_minutes_left: nil when unknown, 0 when the executor is shutting down, which
// every answer then says.
func (c *call) warnOfEnd(left *float64) {
	switch {
	case left == nil, c.person != nil: // a person reads how long the VM lasts in other answers
	case *left <= 0:
		c.warn("The executor is shutting down: %s now, while it still answers; variables that are not saved are lost. After its cell was started again, %s restores the saved ones.",
			c.either("call save_kernel_state and download_from_colab", "run `colab-relay save` and `colab-relay get`"), c.either("restore_kernel_state", "`colab-relay restore`"))
	default:
		c.minutesLeft(left)
	}
}

// minutesLeft returns the minutes until the VM's expected end without a request; nil if unknown.
// fresh is a new estimate, or nil. It warns a model when the VM's published time limit is near. A VM
// may exceed it, so 0 minutes only mean soon.
func (c *call) minutesLeft(fresh *float64) *float64 {
	left, warn := c.vmEnds.left(c.target.Name, c.target.Client.InstanceID(), fresh, time.Now())
	if warn && c.person == nil {
		c.warn("The VM is expected to end in about %s: call save_kernel_state to keep the variables, download_from_colab for files.", plain.Count(max(int(math.Ceil(*left)), 1), "minute"))
	}
	return left
}
