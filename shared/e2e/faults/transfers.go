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
	"os/exec"
	"path/filepath"
	"strings"
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

func (u *upload) do(ctx context.Context, s *scene) {
	data, local := u.bytes(), filepath.Join(s.laptop.dir, "files", u.name)
	harness.Check(s.write(ctx, local, data))
	args := map[string]any{"local_path": local, "remote_path": "up/" + u.name}
	err := s.transfer(ctx, "upload_to_colab", args, data, func() string { return filepath.Join(s.world.folder(), "up", u.name) }, nil)
	harness.Check(errors.Join(err, os.Remove(local)))
}

func (d *download) do(ctx context.Context, s *scene) {
	data := d.bytes()
	remote := func() error { return s.write(ctx, filepath.Join(s.world.folder(), "down", d.name), data) }
	harness.Check(remote())
	args := map[string]any{"remote_path": "down/" + d.name}
	err := s.transfer(ctx, "download_from_colab", args, data, func() string { return filepath.Join(s.laptop.dir, "saved", d.name) }, remote)
	harness.Check(errors.Join(err, discard(filepath.Join(s.world.folder(), "down", d.name))))
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
				s.tally.add(didLine, "files", 1)
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

func (f *folder) do(ctx context.Context, s *scene) {
	want := f.content()
	local := filepath.Join(s.laptop.dir, "files", f.name)
	for path, data := range want {
		harness.Check(s.write(ctx, filepath.Join(local, path), data))
	}
	for {
		harness.Must(s.untilDone(ctx, "upload_to_colab", map[string]any{"local_path": local, "remote_path": "up/" + f.name}, nil))
		if err := sameFiles(filepath.Join(s.world.folder(), "up", f.name), want); err == nil {
			a := harness.Must(s.untilDone(ctx, "download_from_colab", map[string]any{"remote_path": "up/" + f.name, "local_filename": "back" + f.name}, gone))
			if a.Error() == "" {
				s.tally.add(didLine, "files", 2*f.files)
				back := filepath.Join(s.laptop.dir, "saved", "back"+f.name)
				harness.Check(errors.Join(sameFiles(back, want), discard(local, back, filepath.Join(s.world.folder(), "up", f.name))))
				return
			}
		} else if !s.excuses.any(vmReplaced) {
			harness.Check(err)
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

// command is a person's commands: a run, and a file to the VM and back. The first of the
// transfers may be killed.
type command struct {
	name string
	content
	dies  bool
	after time.Duration
}

func newCommand(r *rand.Rand, name string) operation {
	return &command{name, content{r.Uint64(), r.IntN(4 << 20)}, r.IntN(4) > 0, time.Duration(r.IntN(200)) * time.Millisecond}
}

func (c *command) String() string {
	if c.dies {
		return fmt.Sprintf("the commands run, put (killed after %d ms) and get of %d bytes", c.after.Milliseconds(), c.size)
	}
	return fmt.Sprintf("the commands run, put and get of %d bytes", c.size)
}

func (c *command) do(ctx context.Context, s *scene) {
	harness.Check(c.run(ctx, s))
	data, local := c.bytes(), filepath.Join(s.laptop.dir, "files", c.name)
	back := local + ".back"
	harness.Check(s.write(ctx, local, data))
	if c.dies {
		killed, cancel := context.WithTimeout(ctx, c.after)
		if _, err := s.command(killed, "put", local, "up/"+c.name); err != nil && killed.Err() != nil {
			s.tally.add(killsLine, "command", 1)
		}
		cancel()
	}
	for {
		harness.Check(s.untilExit0(ctx, "put", local, "up/"+c.name))
		_, err := s.command(ctx, "get", "up/"+c.name, back)
		if err == nil {
			break
		}
		if !s.commandMayFail(err, networkFails|executorEnds|vmReplaced|crowded) {
			harness.Check(err)
		}
		harness.FailIf(ctx.Err() != nil, "get still fails: %w", err)
	}
	got, err := os.ReadFile(back)
	harness.FailIf(err == nil && !bytes.Equal(got, data), "get returned %d other bytes than put was given", len(got))
	s.tally.add(didLine, "files", 2)
	harness.Check(errors.Join(err, discard(local, back, filepath.Join(s.world.folder(), "up", c.name))))
}

// run runs code; exit code 0 says that it succeeded.
func (c *command) run(ctx context.Context, s *scene) error {
	x := s.submission(c.name, fmt.Sprintf("print('out %s')", c.name), "out "+c.name+"\n")
	out, err := s.command(ctx, "run", "-c", x.code)
	if err == nil {
		x.reported = contract.StatusSucceeded
		return x.checkText("the output of the command for run "+x.id, x.reported, out)
	}
	if !s.excuses.any(networkFails | executorEnds | kernelEnds | crowded) {
		return err
	}
	return nil
}

// untilExit0 repeats a command until it succeeds.
func (s *scene) untilExit0(ctx context.Context, args ...string) error {
	for {
		_, err := s.command(ctx, args...)
		if err == nil || !s.commandMayFail(err, networkFails|executorEnds|relayEnds|crowded) {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the command still fails: %w", err)
		}
	}
}

// commandMayFail reports whether the step excuses a command's error. A full disk excuses only errors
// that say so.
func (s *scene) commandMayFail(err error, of excuses) bool {
	full := strings.Contains(err.Error(), "disk is full") || strings.Contains(err.Error(), "no space left")
	return s.excuses.any(of) || full && s.excuses.any(vmDiskFull|laptopDiskFull)
}

// command runs the relay's program as a person does. It is killed when ctx ends.
func (s *scene) command(ctx context.Context, args ...string) (stdout string, err error) {
	like := s.laptop.config.Command()
	cmd := exec.CommandContext(ctx, like.Path, args...)
	cmd.Dir, cmd.Env = like.Dir, like.Env
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("colab-relay %s: %w: %s", args[0], err, errs.String())
	}
	return out.String(), nil
}

// input is a run that asks for a line.
type input struct{ name string }

func newInput(_ *rand.Rand, name string) operation { return &input{name} }

func (i *input) String() string { return "a run with input()" }

func (i *input) do(ctx context.Context, s *scene) {
	line := "the line of " + i.name
	x := s.submission(i.name, "print('got', input('? '))", "got "+line+"\n")
	a, begun, err := s.begin(ctx, x)
	for err == nil && begun && !x.over() {
		if x.reported == contract.StatusWaitingForInput {
			harness.Must(s.ask(ctx, "provide_input", map[string]any{"execution_id": x.executionID, "text": line}, inputErrors))
		}
		_, begun, err = s.get(ctx, x, 0, 1)
	}
	if err == nil && begun {
		err = s.follow(ctx, x, harness.Answer{Fields: a.Fields})
	}
	harness.Check(err)
}

// inputErrors say that an earlier answer was taken, or that the run has ended.
var inputErrors = accepted{string(contract.CodeConflict): always, string(contract.CodeNotFound): vmReplaced}

// interruptErrors say that the run has ended.
var interruptErrors = accepted{
	string(contract.CodeConflict): always, string(contract.CodeNotFound): vmReplaced,
	string(contract.StatusKernelDied): kernelEnds, string(contract.StatusLost): executorEnds,
	string(contract.StatusCancelled): always, string(contract.StatusInterrupted): always,
}

// interrupted is an endless run that the agent interrupts.
type interrupted struct {
	name  string
	after time.Duration
}

func newInterrupted(r *rand.Rand, name string) operation {
	return &interrupted{name, time.Duration(r.IntN(400)) * time.Millisecond}
}

func (i *interrupted) String() string { return "an endless run that is interrupted" }

func (i *interrupted) do(ctx context.Context, s *scene) {
	x := s.submission(i.name, "import time\nwhile True: time.sleep(0.01)", "")
	x.expected = accepted{string(contract.StatusInterrupted): always, string(contract.StatusCancelled): always}
	a, begun, err := s.begin(ctx, x)
	for err == nil && begun && !x.over() {
		pause(ctx, i.after)
		_, err = s.ask(ctx, "interrupt_execution", map[string]any{"execution_id": x.executionID}, interruptErrors)
		if err == nil {
			a, begun, err = s.get(ctx, x, 0, 1)
		}
	}
	harness.Check(err)
	harness.FailIf(begun && x.reported == contract.StatusSucceeded, "run %s never ends, and is said to have succeeded: %s", x.id, a.Text)
}

// cancelled is a run whose call the host cancels.
type cancelled struct {
	long
	after time.Duration
}

func newCancelled(r *rand.Rand, name string) operation {
	return &cancelled{long{name, 10 + r.IntN(40), 5 + r.IntN(40)}, time.Duration(r.IntN(600)) * time.Millisecond}
}

func (c *cancelled) String() string { return c.long.String() + " whose call is cancelled" }

func (c *cancelled) do(ctx context.Context, s *scene) {
	x := c.submission(s)
	call, cancel := context.WithTimeout(ctx, c.after)
	defer cancel()
	a, err := s.laptop.current().Call(call, "run_code_long", map[string]any{"code": x.code})
	if err == nil && !(a.Error() == callCancelled && s.excuses.any(relayEnds)) {
		x.take(a)
		harness.Must(s.judge("run_code_long", a, nil))
	} else {
		a = harness.Answer{}
		s.tally.add(didLine, "cancelled calls", 1)
	}
	if x.executionID == "" {
		x.executionID = harness.Must(s.find(ctx, x.id))
	}
	if x.executionID != "" {
		harness.Check(s.follow(ctx, x, a))
	}
}
