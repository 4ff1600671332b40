package colabcli

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"colabrelay/relay/plain"
	"colabrelay/relay/vm"
)

// row is a line of `colab sessions`: a VM that Google lists for the account.
type row struct {
	name     string // as given to `colab new`; unnamed if the program does not know the VM
	endpoint string // Google's own name of the VM
	spec     vm.Spec
}

// unnamed is the name of a VM that the program did not create, or whose name it has lost. It
// can neither use nor stop such a VM.
const unnamed = "?"

// rowPattern matches what the program prints for a VM. Other lines are messages.
var rowPattern = regexp.MustCompile(`^\[(.*)\] (\S+) \| Hardware: (\S+) \| Shape: (Standard|High-RAM) \| Variant: \S+$`)

// noRows is what it prints when there is none.
const noRows = "[colab] No active sessions found on server."

// rows asks the program for all VMs.
func (b *Backend) rows(ctx context.Context) ([]row, error) {
	res, err := b.run(ctx, call{argv: sessions.argv(nil), limit: listLimit})
	if err != nil {
		return nil, err
	}
	if res.code != 0 {
		return nil, refusal(sessions, res)
	}
	return parseRows(res)
}

// parseRows reads the output of `colab sessions`. It returns no list unless the whole output
// makes sense, because a VM that is missing would look gone.
func parseRows(res result) ([]row, error) {
	if res.dropped || strings.Count(res.stdout, "\n") > 2*vm.MaxMachines {
		return nil, fmt.Errorf("`colab sessions` printed more than the list of %d VMs", vm.MaxMachines)
	}
	if strings.Contains(res.stderr, noCredentials) { // which it follows by an empty list
		return nil, refusal(sessions, res)
	}
	var rows []row
	empty := false
	for line := range strings.SplitSeq(res.stdout, "\n") {
		line = strings.TrimRight(line, "\r")
		m := rowPattern.FindStringSubmatch(line)
		switch {
		case m != nil:
			rows = append(rows, row{name: m[1], endpoint: m[2], spec: specOf(m[3], m[4])})
		case line == noRows:
			empty = true
		case line != "" && !strings.HasPrefix(line, "[colab] "):
			return nil, fmt.Errorf("`colab sessions` printed a line that the relay does not understand: %q", clip(plain.Line(line)))
		}
	}
	if empty == (len(rows) > 0) {
		return nil, fmt.Errorf("`colab sessions` printed neither VMs nor that there are none; a newer relay may understand it. It printed: %s", lastLines(res))
	}
	if len(rows) > vm.MaxMachines {
		return nil, fmt.Errorf("`colab sessions` lists %d VMs; the relay reads at most %d", len(rows), vm.MaxMachines)
	}
	return rows, nil
}

func specOf(hardware, shape string) vm.Spec {
	if hardware == vm.CPU {
		hardware = ""
	}
	return vm.Spec{Accelerator: hardware, HighRAM: shape == "High-RAM"}
}

// List implements vm.Backend. A VM that the program has no name for is listed with the id that
// the relay gave it, if that is known, and else with Google's name. It is not Ready.
func (b *Backend) List(ctx context.Context) ([]vm.Machine, error) {
	rows, err := b.identified(ctx)
	if err != nil {
		return nil, err
	}
	machines := make([]vm.Machine, len(rows))
	for i, r := range rows {
		machines[i] = r.machine()
	}
	return machines, nil
}

// identifiedRow is a row with the VM's id.
type identifiedRow struct {
	row
	id string
}

func (r identifiedRow) machine() vm.Machine {
	return vm.Machine{ID: r.id, Spec: r.spec, Ready: r.name != unnamed}
}

// identified returns all VMs with their ids, and forgets the records of VMs that are gone.
func (b *Backend) identified(ctx context.Context) ([]identifiedRow, error) {
	known, err := b.records.all() // before the list, which then has the VMs of all of them
	if err != nil {
		return nil, err
	}
	rows, err := b.rows(ctx)
	if err != nil {
		return nil, err
	}
	found := make([]identifiedRow, len(rows))
	for i, r := range rows {
		found[i] = identifiedRow{r, r.name}
		if r.name == unnamed {
			found[i].id = known.idOf(r, rows)
		}
	}
	for id, rec := range known {
		if rec.Endpoint != "" && !slices.ContainsFunc(rows, func(r row) bool { return r.endpoint == rec.Endpoint }) {
			b.records.remove(id)
		}
	}
	return found, nil
}

// find returns the VM with that id, or false if Google does not list it.
func (b *Backend) find(ctx context.Context, id string) (identifiedRow, bool, error) {
	rows, err := b.identified(ctx)
	if err != nil {
		return identifiedRow{}, false, err
	}
	i := slices.IndexFunc(rows, func(r identifiedRow) bool { return r.id == id })
	if i < 0 {
		return identifiedRow{}, false, nil
	}
	return rows[i], true, nil
}

// Delete implements vm.Backend.
func (b *Backend) Delete(ctx context.Context, id string) error {
	if b.isCreating(ctx, id) {
		return fmt.Errorf("delete VM %q: `colab new` is still starting it; try again when it has ended", id)
	}
	r, found, err := b.find(ctx, id)
	switch {
	case err != nil:
		return err
	case !found:
		b.records.remove(id)
		return nil
	case r.name == unnamed:
		return errUnnamed(r.row)
	}
	if err := usable(id); err != nil {
		return err
	}
	res, err := b.run(ctx, call{argv: stop.argv([]setting{{session, id}}), limit: stopLimit})
	if err != nil {
		return err
	}
	if res.code != 0 {
		return refusal(stop, res)
	}
	return b.awaitEnd(ctx, r)
}

// Bounds of the time for which a stopped VM may still be listed.
const (
	endLimit    = time.Minute
	endInterval = 2 * time.Second
)

// awaitEnd waits until Google no longer lists the VM. The program forgets its name before.
func (b *Backend) awaitEnd(ctx context.Context, r identifiedRow) error {
	for start := time.Now(); ; {
		rows, err := b.rows(ctx)
		if err != nil {
			return fmt.Errorf("`colab stop` has ended, but whether the VM is gone is unknown: %w", err)
		}
		if !slices.ContainsFunc(rows, func(other row) bool { return other.endpoint == r.endpoint }) {
			b.records.remove(r.id)
			return nil
		}
		if time.Since(start) > endLimit {
			return fmt.Errorf("`colab stop` has ended, but after %v Google still lists VM %q (%s)", endLimit, r.id, plain.Line(r.endpoint))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the end of VM %q: %w", r.id, ctx.Err())
		case <-time.After(endInterval):
		}
	}
}
