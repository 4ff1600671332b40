package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"colabrelay/shared/contract"
)

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

func (c *command) do(ctx context.Context, s *scene) error {
	if err := c.run(ctx, s); err != nil {
		return err
	}
	data, local := c.bytes(), filepath.Join(s.laptop.dir, "files", c.name)
	back := local + ".back"
	if err := s.write(ctx, local, data); err != nil {
		return err
	}
	if c.dies {
		killed, cancel := context.WithTimeout(ctx, c.after)
		if _, err := s.command(killed, "put", local, "up/"+c.name); err != nil && killed.Err() != nil {
			s.tally.killed("command")
		}
		cancel()
	}
	for {
		if err := s.untilExit0(ctx, "put", local, "up/"+c.name); err != nil {
			return err
		}
		_, err := s.command(ctx, "get", "up/"+c.name, back)
		if err == nil {
			break
		}
		if !s.commandMayFail(err, networkFails|executorEnds|vmReplaced) {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("get still fails: %w", err)
		}
	}
	got, err := os.ReadFile(back)
	if err == nil && !bytes.Equal(got, data) {
		return fmt.Errorf("get returned %d other bytes than put was given", len(got))
	}
	s.tally.add("files", 2)
	return errors.Join(err, discard(local, back, filepath.Join(s.world.folder(), "up", c.name)))
}

// run runs code; exit code 0 says that it succeeded.
func (c *command) run(ctx context.Context, s *scene) error {
	x := s.submission(c.name, fmt.Sprintf("print('out %s')", c.name), "out "+c.name+"\n")
	out, err := s.command(ctx, "run", "-c", x.code)
	if err == nil {
		x.reported = contract.StatusSucceeded
		return x.checkText("the output of the command for run "+x.id, x.reported, out)
	}
	if !s.excuses.any(networkFails | executorEnds | kernelEnds) {
		return err
	}
	return nil
}

// untilExit0 repeats a command until it succeeds.
func (s *scene) untilExit0(ctx context.Context, args ...string) error {
	for {
		_, err := s.command(ctx, args...)
		if err == nil || !s.commandMayFail(err, networkFails|executorEnds|relayEnds) {
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
