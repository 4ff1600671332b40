package vm

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"path/filepath"

	bootstrap "colabrelay/colab-bootstrap"
	"colabrelay/relay/client"
	"colabrelay/shared/bounded"
	"colabrelay/shared/keep"
)

// maxProgram bounds the executor, in bytes. It has about 20 MB.
const maxProgram = 128 << 20

// Program is an executor for VMs.
type Program struct {
	SHA256 string // in hex
	// Content returns the program, with this digest.
	Content func(context.Context) ([]byte, error)
}

// elfMachines are the values of e_machine in ELF's header, by Go's names of the processors.
var elfMachines = map[string]uint16{"amd64": 62, "arm64": 183}

// elfMachine returns e_machine of a 64-bit, little-endian ELF file, 0 for any other content.
// (The package debug/elf would make the relay 90 KB larger.)
func elfMachine(content []byte) uint16 {
	if len(content) < 64 || string(content[:6]) != "\x7fELF\x02\x01" {
		return 0
	}
	return binary.LittleEndian.Uint16(content[18:])
}

// FileProgram returns the executor in a file, which must be for Linux and the processor; for
// any if arch is empty.
func FileProgram(path, arch string) (Program, error) {
	content, err := bounded.ReadFile(path, maxProgram)
	if err != nil {
		return Program{}, fmt.Errorf("read the executor: %w", err)
	}
	switch machine := elfMachine(content); {
	case machine == 0:
		return Program{}, fmt.Errorf("%w: %q is not an executor for Linux", ErrBadRequest, path)
	case arch != "" && machine != elfMachines[arch]:
		return Program{}, fmt.Errorf("%w: %q is for another processor than the VM's, linux/%s", ErrBadRequest, path, arch)
	}
	return Program{digestOf(content), func(context.Context) ([]byte, error) { return content, nil }}, nil
}

// ReleaseProgram returns the executor of a release. Its content is fetched once and kept in
// the folder cache; a copy with another digest is fetched again.
func ReleaseProgram(r bootstrap.Release, arch, cache string) (Program, error) {
	digest := map[string]string{"amd64": r.SHA256AMD64, "arm64": r.SHA256ARM64}[arch]
	if digest == "" {
		return Program{}, fmt.Errorf("release %q has no executor for the VM's processor, linux/%s", r.Version, arch)
	}
	name := "executor-linux-" + arch
	kept := filepath.Join(cache, name+"-"+digest[:min(16, len(digest))])
	return Program{digest, func(ctx context.Context) ([]byte, error) {
		if content, err := bounded.ReadFile(kept, maxProgram); err == nil && digestOf(content) == digest {
			return content, nil
		}
		content, err := client.ReleaseFile(ctx, r.Releases+"/"+r.Version+"/"+name, maxProgram)
		if err != nil {
			return nil, fmt.Errorf("fetch the executor: %w", err)
		}
		if digestOf(content) != digest {
			return nil, fmt.Errorf("fetch the executor: %s of release %q is not the file that SHA256SUMS names (its SHA-256 differs)", name, r.Version)
		}
		_ = keep.WriteFile(kept, content) // without a copy it is fetched again
		return content, nil
	}}, nil
}

func digestOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
