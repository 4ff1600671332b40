package progress

import (
	"strings"
	"time"
)

// How the rate is measured.
const (
	window = 10 * time.Second       // the rate is the average over this time
	step   = 250 * time.Millisecond // between two samples
	soon   = time.Second            // with less time measured, a rate would be a guess
)

// rate measures how fast one transfer is. Its zero value is ready to use.
type rate struct {
	samples     []sample // at most window/step + 2
	done, total int64
}

type sample struct {
	at   time.Time
	done int64
}

// record sets how many of total bytes are done. The bytes of the first call were moved
// earlier and do not count towards the rate. The same applies when done decreases, as it
// does when a file restarts.
func (r *rate) record(done, total int64, now time.Time) {
	if done < r.done {
		r.samples = r.samples[:0]
	}
	r.done, r.total = done, total
	if n := len(r.samples); n == 0 || now.Sub(r.samples[n-1].at) >= step {
		r.samples = append(r.samples, sample{now, done})
	}
	old := 0
	for old < len(r.samples)-1 && now.Sub(r.samples[old+1].at) >= window {
		old++
	}
	r.samples = append(r.samples[:0], r.samples[old:]...)
}

// describe returns the share that is done and, once they are known, the rate and the time
// left.
func (r *rate) describe(now time.Time) string {
	parts := []string{Share(r.done, r.total)}
	if speed := r.perSecond(now); speed > 0 && r.done < r.total {
		left := time.Duration(float64(r.total-r.done) / speed * float64(time.Second))
		parts = append(parts, Bytes(int64(speed))+"/s", Duration(left)+" left")
	}
	return strings.Join(parts, ", ")
}

// perSecond returns the rate in bytes, or 0 while it is unknown.
func (r *rate) perSecond(now time.Time) float64 {
	if len(r.samples) == 0 || now.Sub(r.samples[0].at) < soon {
		return 0
	}
	return float64(r.done-r.samples[0].done) / now.Sub(r.samples[0].at).Seconds()
}
