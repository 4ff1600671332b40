package main

import (
	"bytes"
	"debug/macho"
	"encoding/binary"
	"fmt"
)

// pageBits is the alignment of a program in a universal file, as a power of two: 16 KiB,
// the page size of Apple's processors. lipo uses the same.
const pageBits = 14

// fat joins Mach-O programs for different processors into one file that macOS runs on all
// of them (mach-o/fat.h). The programs, and with them the signatures that Go's linker puts
// into those for arm64, are not changed.
func fat(programs ...[]byte) ([]byte, error) {
	type arch struct{ CPU, SubCPU, Offset, Size, Align uint32 }
	header := []any{uint32(macho.MagicFat), uint32(len(programs))}
	end := 8 + 20*len(programs)
	var body bytes.Buffer
	for _, program := range programs {
		f, err := macho.NewFile(bytes.NewReader(program))
		if err != nil {
			return nil, fmt.Errorf("a program for macOS: %w", err)
		}
		start := (end + 1<<pageBits - 1) >> pageBits << pageBits
		body.Write(make([]byte, start-end))
		body.Write(program)
		end = start + len(program)
		header = append(header, arch{uint32(f.Cpu), f.SubCpu, uint32(start), uint32(len(program)), pageBits})
	}
	var file bytes.Buffer
	for _, part := range header {
		if err := binary.Write(&file, binary.BigEndian, part); err != nil {
			return nil, err
		}
	}
	_, err := body.WriteTo(&file)
	return file.Bytes(), err
}
