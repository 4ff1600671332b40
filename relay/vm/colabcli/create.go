package colabcli

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"colabrelay/relay/plain"
	"colabrelay/relay/vm"
	"colabrelay/shared/keep"
)

// Create implements vm.Backend. When ctx ends it returns, but `colab new` continues, even if
// the relay is killed: a program that is interrupted there leaves a VM that has no name, which
// nobody but Colab's page can stop. A file is locked while any relay creates the VM, and as long as
// a `colab new` for it runs, which inherits the lock: a repeated Create waits for it.
func (b *Backend) Create(ctx context.Context, id string, s vm.Spec) error {
	argv, err := newArguments(id, s)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("create VM %q: %w", plain.Clip(id, maxLineRunes), err)
	}
	file, err := b.lock(ctx, id)
	if err != nil {
		return fmt.Errorf("lock the creation of VM %q: %w", id, err)
	}
	rec, err := b.begin(ctx, id, s)
	if err != nil {
		file.Close()
		return err
	}
	done := make(chan error, 1)
	go func() {
		defer file.Close()
		detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), createLimit)
		defer cancel()
		res, err := b.run(detached, call{argv: argv, limit: createLimit, keep: file})
		if err == nil && res.code != 0 {
			err = refusal("new", res)
		}
		done <- b.created(detached, id, rec, err)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("create VM %q: %w; `colab new` continues, and the VM is listed when it exists", id, ctx.Err())
	}
}

// begin records that a VM is asked for, unless an earlier attempt created it.
func (b *Backend) begin(ctx context.Context, id string, s vm.Spec) (record, error) {
	before, err := b.rows(ctx)
	if err != nil {
		return record{}, err
	}
	if err := b.earlier(id, before); err != nil {
		return record{}, err
	}
	rec := record{Spec: s}
	for _, r := range before {
		rec.Before = append(rec.Before, r.endpoint)
	}
	if err := b.records.put(id, rec); err != nil {
		return record{}, fmt.Errorf("record VM %q before it is asked for: %w", id, err)
	}
	return rec, nil
}

func newArguments(id string, s vm.Spec) ([]string, error) {
	if err := usable(id); err != nil {
		return nil, err
	}
	words := []string{"new", "-s", id}
	switch {
	case s.Accelerator == vm.CPU:
	case !slices.Contains(vm.Accelerators, s.Accelerator): // the program would choose another one
		return nil, fmt.Errorf("unknown accelerator %q", plain.Clip(s.Accelerator, maxLineRunes))
	case strings.HasPrefix(s.Accelerator, "V"):
		words = append(words, "--tpu", strings.ToLower(s.Accelerator))
	default:
		words = append(words, "--gpu", s.Accelerator)
	}
	if s.HighRAM {
		words = append(words, "--high-mem")
	}
	return words, nil
}

// earlier returns an error if an earlier attempt created the VM. A second `colab new` with
// its name would make the program forget the first VM.
func (b *Backend) earlier(id string, rows []row) error {
	if slices.ContainsFunc(rows, func(r row) bool { return r.name == id }) {
		return fmt.Errorf("%w: %q", vm.ErrExists, id)
	}
	if kept := b.records.damaged(); kept != "" {
		return fmt.Errorf("start VM %q: what the relay remembers of its VMs was damaged, and is kept as %q: this one may have been started before; look at `colab sessions`, and delete that file to go on", id, kept)
	}
	known, err := b.records.all()
	rec, found := known[id]
	if err != nil || !found {
		return err
	}
	if i := slices.IndexFunc(rows, func(r row) bool { return r.endpoint == rec.Endpoint || rec.mayBe(r) }); i >= 0 {
		return errUnnamed(rows[i])
	}
	return nil
}

// created finds out what `colab new`, which ended with failure, has left. A VM may exist
// although the program failed.
func (b *Backend) created(ctx context.Context, id string, rec record, failure error) error {
	if noLogin(failure) {
		b.records.remove(id)
		return failure
	}
	rows, err := b.rows(ctx)
	if err != nil {
		return errors.Join(failure, fmt.Errorf("whether VM %q exists is unknown: %w", id, err))
	}
	if i := slices.IndexFunc(rows, func(r row) bool { return r.name == id }); i >= 0 {
		rec.Endpoint = rows[i].endpoint
		return b.records.put(id, rec)
	}
	if i := slices.IndexFunc(rows, rec.mayBe); i >= 0 {
		return fmt.Errorf("`colab new` left a VM that is probably %q: %w (%v)", id, errUnnamed(rows[i]), failure)
	}
	if failure == nil {
		return fmt.Errorf("`colab new` ended without an error, but `colab sessions` does not list VM %q", id)
	}
	if isRefusal(failure) {
		b.records.remove(id)
	}
	return failure
}

// isRefusal reports whether Google refused to start a VM. After other errors, such as a lost
// answer, it may still start one, which the record then recognises.
func isRefusal(err error) bool {
	return errors.Is(err, vm.ErrNoneFree) || errors.Is(err, vm.ErrNotEligible) || errors.Is(err, vm.ErrTooMany)
}

// lockPath is the file that is locked while a VM is created. The id has been checked: see usable.
func (b *Backend) lockPath(id string) string { return filepath.Join(b.cfg.Dir, id+".lock") }

// lockInterval is how often a lock is tried that somebody else has.
const lockInterval = time.Second

// lock waits for a relay, or a `colab new` of one that was killed, which creates the VM.
func (b *Backend) lock(ctx context.Context, id string) (*os.File, error) {
	if err := os.MkdirAll(b.cfg.Dir, 0o700); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(b.lockPath(id), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = keep.Repeat(ctx, lockInterval, func() (bool, error) { return tryLock(file) })
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// forget forgets a VM that is gone. Its id is never used again.
func (b *Backend) forget(id string) {
	b.records.remove(id)
	if usable(id) == nil {
		_ = os.Remove(b.lockPath(id))
	}
}

// A creation's lock is looked at up to lockLooks times, lockPause apart. A process that is being
// started shares the locks of its parent until it runs its program, so an ended creation can
// look like one in progress for a moment.
const (
	lockPause = 50 * time.Millisecond
	lockLooks = 20
)

// isCreating reports whether any relay is creating the VM.
func (b *Backend) isCreating(ctx context.Context, id string) bool {
	for range lockLooks {
		if usable(id) != nil || !keep.IsLocked(b.lockPath(id)) {
			return false
		}
		select {
		case <-time.After(lockPause):
		case <-ctx.Done():
			return true
		}
	}
	return true
}

// runner is the Python function that runs code on the VM and prints its outcome as one line.
//
//go:embed runner.py
var runner string

// maxValue bounds the text of an exception, in bytes.
const maxValue = 1000

// Exec implements vm.Backend. `colab exec` mixes what the code prints with its own messages,
// and ends with code 0 even if the code raised an exception. So the code runs inside a
// function that prints one line of JSON behind a random mark; nothing else is used.
func (b *Backend) Exec(ctx context.Context, id, code string, limit time.Duration) (string, error) {
	if err := usable(id); err != nil {
		return "", err
	}
	mark := "colab-relay-" + rand.Text() + ":"
	seconds := max(1, math.Ceil(limit.Seconds()))
	res, err := b.run(ctx, call{
		argv:  []string{"exec", "-s", id, "--timeout", strconv.FormatFloat(seconds, 'f', 0, 64)},
		stdin: program(code, mark),
		limit: limit + execMargin,
	})
	if err != nil {
		return "", err
	}
	if out, found := outcomeIn(res.stdout, mark); found {
		return out.result()
	}
	if strings.Contains(res.stderr, "TimeoutError") {
		return "", fmt.Errorf("the code on VM %q, or what its kernel did before, took more than %v and may still run: %w", id, limit, context.DeadlineExceeded)
	}
	return "", b.failed(ctx, id, "exec", res)
}

// program returns the code of an exec. Its first line is a comment: without a login, the
// program takes that line for the answer to a question.
func program(code, mark string) string {
	return fmt.Sprintf("%s\ncolab_relay_run(%q, %q, %d, %d)\n", runner, base64.StdEncoding.EncodeToString([]byte(code)), mark, vm.MaxOutput, maxValue)
}

// outcome is what runner.py prints.
type outcome struct {
	Output []byte `json:"output"` // base64 in JSON
	Name   string `json:"name"`   // the exception's class; empty without one
	Value  string `json:"value"`
}

// outcomeIn returns the outcome behind the mark.
func outcomeIn(stdout, mark string) (outcome, bool) {
	var out outcome
	_, rest, found := strings.Cut(stdout, mark)
	line, _, _ := strings.Cut(rest, "\n")
	return out, found && json.Unmarshal([]byte(line), &out) == nil
}

func (o outcome) result() (string, error) {
	if len(o.Output) > vm.MaxOutput || len(o.Name) > maxValue || len(o.Value) > maxValue {
		return "", errors.New("the VM's answer to `colab exec` is longer than its bounds")
	}
	if o.Name != "" {
		return string(o.Output), &vm.ExecError{Name: o.Name, Value: o.Value}
	}
	return string(o.Output), nil
}
