package journal

import (
	"sort"

	"colabrelay/shared/contract"
)

const (
	// maxRecent bounds a log that is in memory too, in bytes of its lines and eventOverhead
	// for each event. Only open logs are, of which there are about 20.
	maxRecent     = 64 << 10
	eventOverhead = 512
)

// recent is a complete log in memory, so that the answer to a quick run reads no file.
type recent struct {
	events []contract.Event
	sizes  []int64 // of their lines
	cost   int64
}

// add reports whether there was room for the event, whose line has size bytes.
func (r *recent) add(event contract.Event, size int64) bool {
	r.events, r.sizes = append(r.events, event), append(r.sizes, size)
	r.cost += size + eventOverhead
	return r.cost <= maxRecent
}

// read returns what logReader reads from the files.
func (r *recent) read(offset, maxBytes int64) ([]contract.Event, int64) {
	end := func(i int) int64 { return r.events[i].Offset + offsets(r.events[i]) }
	from := sort.Search(len(r.events), func(i int) bool { return end(i) > offset })
	to := from
	for ; to < len(r.events) && maxBytes > 0; to++ {
		maxBytes -= r.sizes[to]
		offset = end(to)
	}
	return append([]contract.Event{}, r.events[from:to]...), offset
}
