package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
)

// content is bytes that follow from the plan, and do not compress.
type content struct {
	seed uint64
	size int
}

func newContent(r *rand.Rand) content {
	return content{r.Uint64(), [...]int{0, 1, r.IntN(1 << 16), 1 << 16, r.IntN(1 << 20), r.IntN(12 << 20)}[r.IntN(6)]}
}

func (c content) bytes() []byte {
	var key [32]byte
	for k := range 8 {
		key[k] = byte(c.seed >> (8 * k))
	}
	data := make([]byte, c.size)
	_, _ = rand.NewChaCha8(key).Read(data) // which returns no error
	return data
}

// upload and download copy one file.
type upload struct {
	name string
	content
}

type download upload

func newUpload(r *rand.Rand, name string) operation   { return &upload{name, newContent(r)} }
func newDownload(r *rand.Rand, name string) operation { return &download{name, newContent(r)} }

func (u *upload) String() string   { return fmt.Sprintf("an upload of %d bytes", u.size) }
func (d *download) String() string { return fmt.Sprintf("a download of %d bytes", d.size) }

func (u *upload) do(ctx context.Context, s *scene) error {
	data, local := u.bytes(), filepath.Join(s.laptop.dir, "files", u.name)
	if err := s.write(ctx, local, data); err != nil {
		return err
	}
	args := map[string]any{"local_path": local, "remote_path": "up/" + u.name}
	err := s.transfer(ctx, "upload_to_colab", args, data, func() string { return filepath.Join(s.world.folder(), "up", u.name) }, nil)
	return errors.Join(err, os.Remove(local))
}

func (d *download) do(ctx context.Context, s *scene) error {
	data := d.bytes()
	remote := func() error { return s.write(ctx, filepath.Join(s.world.folder(), "down", d.name), data) }
	if err := remote(); err != nil {
		return err
	}
	args := map[string]any{"remote_path": "down/" + d.name}
	err := s.transfer(ctx, "download_from_colab", args, data, func() string { return filepath.Join(s.laptop.dir, "saved", d.name) }, remote)
	return errors.Join(err, discard(filepath.Join(s.world.folder(), "down", d.name)))
}

// gone says that the VM that had the file was replaced. A download of a folder goes on with the paths of
// that VM, which another one here does not serve.
var gone = accepted{string(contract.CodeNotFound): vmReplaced, string(contract.CodeForbiddenPath): vmReplaced}

// transfer calls the tool until the file is complete. Nothing but the complete file ever has its
// name. again makes the source again on a new VM; with nil, the target is on the VM.
func (s *scene) transfer(ctx context.Context, tool string, args map[string]any, data []byte, target func() string, again func() error) error {
	sum := digest(data)
	for {
		a, err := s.ask(ctx, tool, args, gone)
		if err != nil {
			return err
		}
		if a.Error() == string(contract.CodeNotFound) && again != nil {
			err = again()
		}
		if err != nil {
			return err
		}
		got, err := os.ReadFile(target())
		if err == nil && !bytes.Equal(got, data) {
			return fmt.Errorf("%s: the file has %d bytes and the SHA-256 %s, want %d and %s", target(), len(got), digest(got), len(data), sum)
		}
		if a.Error() == "" && a.Fields["can_continue"] != true {
			if a.String("sha256") != sum || a.Int("size_bytes") != int64(len(data)) {
				return fmt.Errorf("%s: the answer has the SHA-256 %s, want %s: %s", tool, a.String("sha256"), sum, a.Text)
			}
			if err == nil {
				s.tally.add("files", 1)
				return errors.Join(onlyOne(target()), discard(target()))
			}
			if !s.excuses.any(vmReplaced) {
				return fmt.Errorf("%s has succeeded without a file: %w", tool, err)
			}
		}
	}
}

// onlyOne checks that nothing else of the transfer is left, such as a part or a second copy.
func onlyOne(path string) error {
	found, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*"+filepath.Base(path)+"*"))
	if err == nil && len(found) != 1 {
		err = fmt.Errorf("the transfer of %q left %q", path, found)
	}
	return err
}

// folder copies a folder to the VM and back.
type folder struct {
	name  string
	seed  uint64
	files int
}

func newFolder(r *rand.Rand, name string) operation { return &folder{name, r.Uint64(), 5 + r.IntN(60)} }

func (f *folder) String() string {
	return fmt.Sprintf("a folder of %d files to the VM and back", f.files)
}

// content returns the files by their paths in the folder.
func (f *folder) content() map[string][]byte {
	r := rand.New(rand.NewPCG(f.seed, 0))
	files := map[string][]byte{}
	for n := range f.files {
		files[fmt.Sprintf("%d/%d/file%d", n%3, n%2, n)] = content{r.Uint64(), r.IntN(20_000)}.bytes()
	}
	return files
}

func (f *folder) do(ctx context.Context, s *scene) error {
	want := f.content()
	local := filepath.Join(s.laptop.dir, "files", f.name)
	for path, data := range want {
		if err := s.write(ctx, filepath.Join(local, path), data); err != nil {
			return err
		}
	}
	for {
		if _, err := s.untilDone(ctx, "upload_to_colab", map[string]any{"local_path": local, "remote_path": "up/" + f.name}, nil); err != nil {
			return err
		}
		if err := sameFiles(filepath.Join(s.world.folder(), "up", f.name), want); err == nil {
			a, err := s.untilDone(ctx, "download_from_colab", map[string]any{"remote_path": "up/" + f.name, "local_filename": "back" + f.name}, gone)
			if err != nil {
				return err
			}
			if a.Error() == "" {
				s.tally.add("files", 2*f.files)
				back := filepath.Join(s.laptop.dir, "saved", "back"+f.name)
				return errors.Join(sameFiles(back, want), discard(local, back, filepath.Join(s.world.folder(), "up", f.name)))
			}
		} else if !s.excuses.any(vmReplaced) {
			return err
		}
	}
}

// untilDone repeats a call until it no longer says can_continue.
func (s *scene) untilDone(ctx context.Context, tool string, args map[string]any, takes accepted) (harness.Answer, error) {
	for {
		a, err := s.ask(ctx, tool, args, takes)
		if err != nil || a.Fields["can_continue"] != true {
			return a, err
		}
	}
}

// sameFiles compares a folder with the files that it must have, and no others.
func sameFiles(dir string, want map[string][]byte) error {
	found := 0
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		found++
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		got, err := os.ReadFile(path)
		if data, ok := want[name]; err == nil && (!ok || !bytes.Equal(got, data)) {
			err = fmt.Errorf("%s has %d bytes, want %d", path, len(got), len(data))
		}
		return err
	})
	if err == nil && found != len(want) {
		err = fmt.Errorf("%s has %d files, want %d", dir, found, len(want))
	}
	return err
}

// write writes a file for an operation, when the disk has room for it.
func (s *scene) write(ctx context.Context, path string, data []byte) error {
	for {
		err := writeFile(path, data)
		if !errors.Is(err, syscall.ENOSPC) || ctx.Err() != nil {
			return err
		}
		pause(ctx, 50*time.Millisecond)
	}
}

// discard deletes what was checked, so that disks do not fill up by themselves.
func discard(paths ...string) error {
	var errs []error
	for _, path := range paths {
		errs = append(errs, os.RemoveAll(path))
	}
	return errors.Join(errs...)
}

func writeFile(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
