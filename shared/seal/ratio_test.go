package seal

import (
	"encoding/binary"
	"errors"
	"runtime"
	"testing"
)

// A member that says that its text is longer than deflate can make it takes no memory.
func TestALengthThatNoCompressionReachesTakesNoMemory(t *testing.T) {
	const size = 4 << 10
	for over := range uint32(2) {
		member := binary.LittleEndian.AppendUint32(make([]byte, size-4), maxRatio*size+over)
		copy(member, []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := decompress(member, 8<<20, func(int64) error { return nil }); !errors.Is(err, ErrInvalid) {
			t.Errorf("%d past the bound: %v", over, err)
		}
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; (took >= maxRatio*size) != (over == 0) {
			t.Errorf("%d past the bound: %d bytes of memory", over, took)
		}
	}
}
