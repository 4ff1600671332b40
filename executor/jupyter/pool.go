package jupyter

import (
	"slices"
	"sync"
)

const (
	// bigFrame is the size from which frames are reused. A kernel sends prints at full
	// speed in messages of about 16 MB; with a new frame for each, the garbage collector
	// lets the heap grow to twice what is in use.
	bigFrame = 1 << 20
	// Capacities from stepFrom on are multiples of frameStep, so that one frame fits all
	// prints of 9 to 18 MB that follow each other. Bytes that are never written to need
	// addresses but no memory.
	frameStep = 9 << 20
	stepFrom  = frameStep / 2
	// pooledFrames and pooledBytes bound what is kept for reuse.
	pooledFrames = 1
	pooledBytes  = 20 << 20
)

// framePool keeps big frames for reuse.
type framePool struct {
	share *share // of all messages whose frames are in use; nil: they have no bound together

	mu   sync.Mutex
	free [][]byte
}

// get returns a frame of size bytes with arbitrary content.
func (p *framePool) get(size int) []byte {
	if size < bigFrame {
		return make([]byte, size)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, frame := range p.free {
		if cap(frame) >= size && cap(frame) <= 4*size {
			p.remove(i)
			return frame[:size]
		}
	}
	if len(p.free) > 0 {
		p.remove(0) // a frame that does not fit now is not worth its memory
	}
	if size < stepFrom {
		return make([]byte, size)
	}
	return make([]byte, size, (size+frameStep-1)/frameStep*frameStep)
}

// take reports whether a message may hold n more bytes.
func (p *framePool) take(n int64) bool { return p.share == nil || p.share.take(n) }

// put takes back the frames of a message that are no longer used, and what it took.
func (p *framePool) put(frames [][]byte, taken int64) {
	if p.share != nil {
		p.share.give(taken)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, frame := range frames {
		if cap(frame) < bigFrame || cap(frame) > pooledBytes {
			continue
		}
		p.free = append(p.free, frame)
		for len(p.free) > pooledFrames || p.bytes() > pooledBytes {
			p.remove(0) // the oldest: its size is least likely to fit
		}
	}
}

func (p *framePool) remove(i int) { p.free = slices.Delete(p.free, i, i+1) }

func (p *framePool) bytes() int {
	total := 0
	for _, frame := range p.free {
		total += cap(frame)
	}
	return total
}
