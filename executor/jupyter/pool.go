package jupyter

import "sync"

const (
	// bigFrame is from where on frames are used again. A kernel sends prints that
	// come at full speed in messages of about 16 MB; with a new frame for each,
	// the collector lets the heap grow to twice what is in use.
	bigFrame = 1 << 20
	// frameStep is what capacities from stepFrom on are a multiple of, so that one
	// frame fits all the prints of 9 to 18 MB that follow each other. What is never
	// written to costs addresses, not memory.
	frameStep = 9 << 20
	stepFrom  = frameStep / 2
	// pooledFrames and pooledBytes bound what is kept for later.
	pooledFrames = 1
	pooledBytes  = 20 << 20
)

// framePool is a short list of big frames to be used again.
type framePool struct {
	mu   sync.Mutex
	free [][]byte
}

// get returns a frame of size bytes, with anything in it.
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
		p.remove(0) // what doesn't fit now would only lie there beside the new one
	}
	if size < stepFrom {
		return make([]byte, size)
	}
	return make([]byte, size, (size+frameStep-1)/frameStep*frameStep)
}

// put takes frames that nobody reads any more.
func (p *framePool) put(frames [][]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, frame := range frames {
		if cap(frame) < bigFrame || cap(frame) > pooledBytes {
			continue
		}
		p.free = append(p.free, frame)
		for len(p.free) > pooledFrames || p.bytes() > pooledBytes {
			p.remove(0) // the oldest: sizes follow what is printed now
		}
	}
}

func (p *framePool) remove(i int) {
	last := len(p.free) - 1
	copy(p.free[i:], p.free[i+1:])
	p.free[last] = nil
	p.free = p.free[:last]
}

func (p *framePool) bytes() int {
	total := 0
	for _, frame := range p.free {
		total += cap(frame)
	}
	return total
}
