package api

import "time"

// clock is the executor's time: the wall clock at the start plus the time that the
// monotonic clock has measured since. NTP sets a VM's wall clock, by hours if the VM was
// started from an image. If the executor followed it, a step back would refuse every
// request signed with the time reported before, and a step forward and back would accept
// replays, because their nonces were dropped in between. A clock that is wrong from the
// start does no harm, because the relay learns the executor's time and signs with it.
type clock struct {
	wall  time.Time // at the start
	start time.Time // the same moment; only its monotonic reading counts
}

// newClock starts at start, which must come from time.Now: it needs a monotonic reading.
func newClock(start time.Time) clock { return clock{wall: start.Round(0), start: start} }

func (c clock) now() time.Time { return c.wall.Add(time.Since(c.start)) }
