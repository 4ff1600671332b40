package hostilevm

import (
	"bytes"
	"compress/flate"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"sync"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/fakevm"
)

// pictureCases take time and memory to decode, or many files to save.
var pictureCases = []Case{
	shows("pictures-50mpx", "shows eight PNGs of 50 million pixels, which would take 20 s and 1.2 GB to decode", func() []contract.Event {
		return many(8, picture(inBase64(emptyPNG(7072, 7072))))
	}),
	shows("pictures-large", "shows eight PNGs of 8 million pixels with 8 bytes each, the largest that the relay decodes", func() []contract.Event {
		return many(8, picture(inBase64(emptyPNG(4096, 2048))))
	}),
	shows("pictures-16mpx", "shows four PNGs of 16 million pixels with 4 bytes each, the most pixels that the relay decodes", func() []contract.Event {
		return many(4, picture(inBase64(largePNG())))
	}),
	shows("pictures-tiny", "shows 5,000 PNGs of one pixel", func() []contract.Event {
		return many(5000, picture(inBase64(emptyPNG(1, 1))))
	}),
	shows("picture-forms", "shows one output in 10,000 forms, each a picture to save", func() []contract.Event {
		ev := contract.Event{Type: contract.EventDisplayData, Data: map[string]json.RawMessage{}}
		for i := range 10_000 {
			ev.Data[fmt.Sprintf("image/x-%d", i)] = json.RawMessage(`"AAAA"`)
		}
		return []contract.Event{ev}
	}),
	shows("displays-small", "shows 2,000 small displays in an answer that is too short to take a turn", func() []contract.Event {
		return many(2000, contract.Event{Type: contract.EventDisplayData, Data: bundle("text/x", "1")})
	}),
	shows("pictures-long", "shows 12 pictures of a megabyte each inline, which must be references to blobs", func() []contract.Event {
		return many(12, picture(inBase64(make([]byte, 900_000))))
	}),
}

// shows returns a case whose executions have these events.
func shows(name, about string, events func() []contract.Event) Case {
	once := sync.OnceValue(events)
	return Case{Name: name, About: about, routes: func(*fakevm.VM) routes {
		return routes{"POST " + contract.PathExecutions: func(q question) fakevm.Reply { return execution(requestID(q), once()...) }}
	}}
}

func many(n int, ev contract.Event) []contract.Event {
	all := make([]contract.Event, n)
	for i := range all {
		all[i] = ev
	}
	return all
}

// picture returns an event that shows a PNG; payload is its JSON.
func picture(payload string) contract.Event {
	return contract.Event{Type: contract.EventDisplayData, Data: bundle("image/png", payload)}
}

func inBase64(b []byte) string { return `"` + base64.StdEncoding.EncodeToString(b) + `"` }

// largePNG returns a PNG of 16 million pixels with 4 bytes each.
func largePNG() []byte {
	const rgba = "\x08\x06\x00\x00\x00"
	return blackPNG(4096, 4096, rgba, (1+4*4096)*4096)
}

// emptyPNG returns a transparent PNG with 16 bits per channel. It is a thousandth of its
// decoded size.
func emptyPNG(width, height int) []byte {
	const rgba16 = "\x10\x06\x00\x00\x00"
	return blackPNG(width, height, rgba16, (1+8*width)*height)
}

// bigPNG returns a black PNG with one bit per pixel.
func bigPNG(width, height int) []byte {
	const oneBit = "\x01\x00\x00\x00\x00"
	return blackPNG(width, height, oneBit, (1+(width+7)/8)*height)
}

// blackPNG returns a PNG of this format whose data is n zeros.
func blackPNG(width, height int, format string, n int) []byte {
	header := binary.BigEndian.AppendUint32(nil, uint32(width))
	header = binary.BigEndian.AppendUint32(header, uint32(height))
	out := chunk([]byte("\x89PNG\r\n\x1a\n"), "IHDR", append(header, format...))
	out = chunk(out, "IDAT", zeros(n))
	return chunk(out, "IEND", nil)
}

// zeros returns n zero bytes in zlib's format (RFC 1950). It repeats one compressed
// megabyte, because compressing 400 of them takes too long for a test.
func zeros(n int) []byte {
	const piece = 1 << 20
	out := append([]byte{0x78, 0xda}, bytes.Repeat(deflated(piece), n/piece)...)
	out = append(out, deflated(n%piece)...)
	out = append(out, 1, 0, 0, 0xff, 0xff)                           // the last block, empty
	return binary.BigEndian.AppendUint32(out, uint32(n%65521)<<16|1) // Adler-32 of zeros
}

// deflated returns n zero bytes as complete blocks, without a final block.
func deflated(n int) []byte {
	var b bytes.Buffer
	w, _ := flate.NewWriter(&b, flate.BestCompression)
	_, _ = w.Write(make([]byte, n))
	_ = w.Flush()
	return b.Bytes()
}

// chunk appends a chunk of a PNG.
func chunk(to []byte, kind string, data []byte) []byte {
	to = binary.BigEndian.AppendUint32(to, uint32(len(data)))
	body := append([]byte(kind), data...)
	to = append(to, body...)
	return binary.BigEndian.AppendUint32(to, crc32.ChecksumIEEE(body))
}
