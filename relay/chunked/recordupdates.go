package chunked

import (
	"time"
	"unicode/utf8"
)

// Bounds of a record.
const (
	maxRanges      = 1000     // beyond it the two oldest are joined
	maxOutput      = 4 << 10  // bytes of printed text
	maxResultBytes = 16 << 20 // of all values together
	perResult      = 64       // bytes that the file needs for a value besides its JSON
)

// Remaining is how many iterations are left.
func (r *Record) Remaining() int64 { return max(0, r.N-r.Done) }

// confirm sets Done to what the kernel reports. If that is less than before, the record
// goes back, because the kernel's variables contain only the iterations that it has run.
func (r *Record) confirm(done int64, kernelID, instanceID string) {
	if r.Kept != nil && r.Kept.Done > done {
		r.Kept = nil // the iterations run again, and their results may differ
	}
	r.dropResults(done)
	r.truncateRanges(done)
	if done > r.Done {
		r.addRange(Range{r.Done, done, kernelID, instanceID})
	}
	r.Done = done
}

// dropResults drops the values of iteration done and later ones.
func (r *Record) dropResults(done int64) {
	for i := len(r.Results) - 1; i >= 0 && r.Results[i].Iteration >= done; i-- {
		r.ResultBytes -= r.Results[i].size()
		r.Results = r.Results[:i]
	}
}

// truncateRanges ends the ranges at iteration done.
func (r *Record) truncateRanges(done int64) {
	for len(r.Ranges) > 0 && r.Ranges[len(r.Ranges)-1].From >= done {
		r.Ranges = r.Ranges[:len(r.Ranges)-1]
	}
	if n := len(r.Ranges); n > 0 {
		r.Ranges[n-1].To = min(r.Ranges[n-1].To, done)
	}
}

// addRange adds iterations to the last range if they ran in the same kernel, or else adds
// their range.
func (r *Record) addRange(ran Range) {
	if n := len(r.Ranges); n > 0 && r.Ranges[n-1].KernelID == ran.KernelID {
		r.Ranges[n-1].To = ran.To
		return
	}
	r.Ranges = append(r.Ranges, ran)
	if len(r.Ranges) > maxRanges {
		r.Ranges[1].From, r.Ranges[1].KernelID, r.Ranges[1].InstanceID = r.Ranges[0].From, "several", "several"
		r.Ranges = append(r.Ranges[:0], r.Ranges[1:]...)
	}
}

// addTimes adds the times of a marker's iterations.
func (r *Record) addTimes(m marker) {
	r.Timed += m.Count
	r.MeanSeconds += (m.Seconds - r.MeanSeconds*float64(m.Count)) / float64(r.Timed)
	r.SlowestSeconds = max(r.SlowestSeconds, m.Slowest)
}

// addTimeout records that a deadline ended an iteration, or the setup, after so many
// seconds. The next attempt then gets more time.
func (r *Record) addTimeout(seconds float64, setup bool) {
	if setup {
		r.SetupSeconds = max(r.SetupSeconds, seconds)
		return
	}
	r.SlowestSeconds = max(r.SlowestSeconds, seconds)
}

// addValue keeps a value, if maxResultBytes allows it.
func (r *Record) addValue(v Value) {
	if r.ResultBytes+v.size() > maxResultBytes {
		r.ResultsDropped++
		return
	}
	r.ResultBytes += v.size()
	r.Results = append(r.Results, v)
}

// size is how many bytes of maxResultBytes a value uses.
func (v Value) size() int { return len(v.Value) + perResult }

// addOutput keeps the end of the printed text.
func (r *Record) addOutput(text string) {
	r.Output += text
	if over := len(r.Output) - maxOutput; over > 0 {
		for over < len(r.Output) && !utf8.RuneStart(r.Output[over]) {
			over++
		}
		r.Output = r.Output[over:]
	}
}

// finish ends the run. Iterations beyond N, which ran before N was reduced, no longer count.
func (r *Record) finish() {
	if r.Done > r.N {
		r.confirm(r.N, r.KernelID, r.InstanceID)
	}
	now := time.Now().UTC()
	r.Status, r.Failure, r.FinishedAt = StatusFinished, nil, &now
}
