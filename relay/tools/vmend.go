package tools

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

// record saves an estimate and reports whether the call should warn now.
func (v *vmEnds) record(runtime, instance string, left time.Duration, now time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	known := v.last[runtime]
	if known.instance != instance {
		known = vmEnd{instance: instance}
	}
	known.ends = now.Add(left)
	due := left < nearEnd && now.Sub(known.warned) >= repeatWarning
	if due {
		known.warned = now
	}
	if v.last == nil {
		v.last = map[string]vmEnd{}
	}
	v.last[runtime] = known
	return due
}

// left returns the minutes until the end by the newest estimate, at least 0; nil if there
// is none.
func (v *vmEnds) left(runtime, instance string, now time.Time) *float64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	known, ok := v.last[runtime]
	if !ok || known.instance != instance {
		return nil
	}
	return round(max(0, known.ends.Sub(now).Minutes()), 10)
}

// warnOfEnd warns if the VM or its executor will end soon. left is an execution's
// session_minutes_left: nil when unknown, 0 when the executor is shutting down, which
// every answer then says.
func (c *call) warnOfEnd(left *float64) {
	switch {
	case left == nil, c.person != nil: // a person reads how long the VM lasts in other answers
	case *left <= 0:
		c.warn("The executor is shutting down: call save_kernel_state and download_from_colab now, while it still answers; variables that are not saved are lost. After its cell was started again, restore_kernel_state restores the saved ones.")
	default:
		c.warnOfLimit(*left)
	}
}

// warnOfLimit warns when the VM's published time limit is near. A VM may exceed it, so 0
// minutes only mean soon.
func (c *call) warnOfLimit(left float64) {
	if c.person != nil {
		return // who reads it in the answer
	}
	minutes := max(math.Ceil(left), 1)
	if c.vmEnds.record(c.target.Name, c.target.Client.InstanceID(), time.Duration(left*float64(time.Minute)), time.Now()) {
		c.warn("The VM is expected to end in about %s: call save_kernel_state to keep the variables, download_from_colab for files.", plain.Count(int(minutes), "minute"))
	}
}

// vmMinutesLeft returns the minutes until the VM's expected end without a request; nil if
// unknown. It also warns.
func (c *call) vmMinutesLeft() *float64 {
	left := c.vmEnds.left(c.target.Name, c.target.Client.InstanceID(), time.Now())
	if left != nil {
		c.warnOfLimit(*left)
	}
	return left
}
