package api

import "time"

// clock is the executor's time: the wall clock as it was at the start, moved on by the
// monotonic clock. NTP steps a VM's wall clock, by hours when the VM was started from
// an image. Followed, a step back would refuse every request that was signed by the
// time told before, and a step forward and back would let replays pass whose nonces
// were forgotten in between. A clock that is wrong from the start harms nobody: the
// relay is told the executor's time and signs by it.
type clock struct {
	wall  time.Time // at the start
	start time.Time // the same moment; only its monotonic reading counts
}

// newClock begins at start, which must have a monotonic reading, as time.Now gives it.
func newClock(start time.Time) clock { return clock{wall: start.Round(0), start: start} }

func (c clock) now() time.Time { return c.wall.Add(time.Since(c.start)) }
