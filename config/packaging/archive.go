package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	_ "embed"
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
