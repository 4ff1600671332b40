package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"debug/macho"
	_ "embed"
	"encoding/binary"
	"fmt"
	"io/fs"
	"strings"
	"time"
)

// Every entry of an archive has this time, the earliest that a zip file can hold.
var entryTime = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

// entry is a file in an archive.
type entry struct {
	name string
	mode fs.FileMode // 0o755 for a program, else 0o644
	data []byte
}

func text(name string, data []byte) entry    { return entry{name, 0o644, data} }
func program(name string, data []byte) entry { return entry{name, 0o755, data} }

// tarball returns a .tar.gz file, which depends on the entries only.
func tarball(entries ...entry) ([]byte, error) {
	var file bytes.Buffer
	compressed, err := gzip.NewWriterLevel(&file, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	archive := tar.NewWriter(compressed)
	for _, e := range entries {
		header := &tar.Header{Name: e.name, Mode: int64(e.mode), Size: int64(len(e.data)), ModTime: entryTime, Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}
		if err := archive.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("pack %q: %w", e.name, err)
		}
		if _, err := archive.Write(e.data); err != nil {
			return nil, fmt.Errorf("pack %q: %w", e.name, err)
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	err = compressed.Close()
	return file.Bytes(), err
}

// zipFile returns a .zip file, which depends on the entries only.
func zipFile(entries ...entry) ([]byte, error) {
	var file bytes.Buffer
	archive := zip.NewWriter(&file)
	for _, e := range entries {
		header := &zip.FileHeader{Name: e.name, Method: zip.Deflate, Modified: entryTime}
		header.SetMode(e.mode)
		w, err := archive.CreateHeader(header)
		if err == nil {
			_, err = w.Write(e.data)
		}
		if err != nil {
			return nil, fmt.Errorf("pack %q: %w", e.name, err)
		}
	}
	err := archive.Close()
	return file.Bytes(), err
}

//go:embed archive/relay.txt
var relayReadme string

//go:embed archive/executor.txt
var executorReadme string

// archives returns what people download by hand: a folder with a program, the licence
// and instructions. Windows opens zip files, the other systems tar.gz files.
func archives(r *release) ([]artifact, error) {
	var files []artifact
	add := func(name, platform, readme string, data []byte) error {
		base := name + "_" + r.number + "_" + strings.ReplaceAll(platform, "-", "_")
		entries := []entry{
			program(base+"/"+name+exe(platform), data),
			text(base+"/LICENSE", r.licence),
			text(base+"/README.txt", r.fill(readme)),
		}
		pack, ending := tarball, ".tar.gz"
		if exe(platform) != "" {
			pack, ending = zipFile, ".zip"
		}
		data, err := pack(entries...)
		files = append(files, artifact{base + ending, data})
		return err
	}
	for _, platform := range relayPlatforms {
		if err := add(command, platform, relayReadme, r.relay[platform]); err != nil {
			return nil, err
		}
	}
	for _, platform := range linuxes {
		if err := add(r.executorPack, platform, executorReadme, r.executor[platform]); err != nil {
			return nil, err
		}
	}
	return files, nil
}

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
