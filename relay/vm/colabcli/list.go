package colabcli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"colabrelay/relay/plain"
	"colabrelay/relay/vm"
	"colabrelay/shared/keep"
	"colabrelay/shared/lazy"
)

// row is a line of `colab sessions`: a VM that Google lists for the account.
type row struct {
	id       string // of the VM; empty in what rows returns
	name     string // as given to `colab new`; unnamed if the program does not know the VM
	endpoint string // Google's own name of the VM
	spec     vm.Spec
}

// unnamed is the name of a VM that the program did not create, or whose name it has lost. It
// can neither use nor stop such a VM.
const unnamed = "?"

// rowPattern matches what the program prints for a VM. Other lines are messages.
var rowPattern = lazy.Regexp(`^\[(.*)\] (\S+) \| Hardware: (\S+) \| Shape: (Standard|High-RAM) \| Variant: \S+$`)

// noRows is what it prints when there is none.
const noRows = "[colab] No active sessions found on server."

// rows asks the program for all VMs.
func (b *Backend) rows(ctx context.Context) ([]row, error) {
	res, err := b.run(ctx, call{argv: []string{"sessions"}, limit: listLimit})
	if err != nil {
		return nil, err
	}
	if res.code != 0 {
		return nil, refusal("sessions", res)
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
		return nil, refusal("sessions", res)
	}
	var rows []row
	empty := false
	for line := range strings.SplitSeq(res.stdout, "\n") {
		line = strings.TrimRight(line, "\r")
		m := rowPattern().FindStringSubmatch(line)
		switch {
		case m != nil:
			rows = append(rows, row{name: m[1], endpoint: m[2], spec: vm.Spec{Accelerator: m[3], HighRAM: m[4] == "High-RAM"}})
		case line == noRows:
			empty = true
		case line != "" && !strings.HasPrefix(line, "[colab] "):
			return nil, fmt.Errorf("`colab sessions` printed a line that the relay does not understand: %q", plain.Clip(line, maxLineRunes))
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

// List implements vm.Backend. A VM that the program has no name for is listed with the id that
// the relay gave it, if that is known, and else with Google's name. It is not Ready.
func (b *Backend) List(ctx context.Context) ([]vm.Machine, error) {
	rows, err := b.identified(ctx)
	if err != nil {
		return nil, err
	}
	machines := make([]vm.Machine, len(rows))
	for i, r := range rows {
		machines[i] = vm.Machine{ID: r.id, Spec: r.spec, Ready: r.name != unnamed}
	}
	return machines, nil
}

// identified returns all VMs with their ids, and forgets the records of VMs that are gone.
func (b *Backend) identified(ctx context.Context) ([]row, error) {
	known, err := b.records.all() // before the list, which then has the VMs of all of them
	if err != nil {
		return nil, err
	}
	rows, err := b.rows(ctx)
	if err != nil {
		return nil, err
	}
	for i, r := range rows {
		if rows[i].id = r.name; r.name == unnamed {
			rows[i].id = known.idOf(r, rows)
		}
	}
	for id, rec := range known {
		if rec.Endpoint != "" && !slices.ContainsFunc(rows, func(r row) bool { return r.endpoint == rec.Endpoint }) {
			b.forget(id)
		}
	}
	return rows, nil
}

// find returns the VM with that id, or nil if Google does not list it.
func (b *Backend) find(ctx context.Context, id string) (*row, error) {
	rows, err := b.identified(ctx)
	if i := slices.IndexFunc(rows, func(r row) bool { return r.id == id }); i >= 0 {
		return &rows[i], nil
	}
	return nil, err
}

// Delete implements vm.Backend.
func (b *Backend) Delete(ctx context.Context, id string) error {
	if b.isCreating(ctx, id) {
		return fmt.Errorf("delete VM %q: `colab new` is still starting it; try again when it has ended", id)
	}
	r, err := b.find(ctx, id)
	switch {
	case err != nil:
		return err
	case r == nil:
		b.forget(id)
		return nil
	case r.name == unnamed:
		return errUnnamed(*r)
	}
	if err := usable(id); err != nil {
		return err
	}
	res, err := b.run(ctx, call{argv: []string{"stop", "-s", id}, limit: stopLimit})
	if err != nil {
		return err
	}
	if res.code != 0 {
		return refusal("stop", res)
	}
	return b.awaitEnd(ctx, r)
}

// Bounds of the time for which a stopped VM may still be listed.
const (
	endLimit    = time.Minute
	endInterval = 2 * time.Second
)

// awaitEnd waits until Google no longer lists the VM. The program forgets its name before.
func (b *Backend) awaitEnd(ctx context.Context, r *row) error {
	start := time.Now()
	err := keep.Repeat(ctx, endInterval, func() (bool, error) {
		rows, err := b.rows(ctx)
		switch {
		case err != nil:
			return false, fmt.Errorf("`colab stop` has ended, but whether the VM is gone is unknown: %w", err)
		case !slices.ContainsFunc(rows, func(other row) bool { return other.endpoint == r.endpoint }):
			return true, nil
		case time.Since(start) > endLimit:
			return false, fmt.Errorf("`colab stop` has ended, but after %v Google still lists VM %q (%s)", endLimit, r.id, plain.Line(r.endpoint))
		}
		return false, nil
	})
	if err == nil {
		b.forget(r.id)
	}
	return err
}

// record is what the relay remembers of a VM that it asked the program for. The program
// forgets a VM's name when an answer looks as if the VM were gone, and never learns it if it
// is killed while it creates the VM. With the record the VM is still recognised.
type record struct {
	Endpoint string   `json:"endpoint,omitempty"` // Google's name of the VM; empty until it was listed
	Spec     vm.Spec  `json:"spec"`
	Before   []string `json:"before,omitempty"` // the endpoints that were listed before the VM was asked for
}

type recordsByID map[string]record

// records is the file of all records.
type records struct {
	keep.File[recordsByID]
	log *slog.Logger
}

func newRecords(dir string, log *slog.Logger) records {
	return records{keep.File[recordsByID]{Path: filepath.Join(dir, "records.json"), What: "what the relay remembers of its VMs", Max: 16 << 20}, log}
}

// all returns the records. Damaged ones are set aside: with them, no VM could be listed or deleted.
func (r records) all() (recordsByID, error) {
	known, err := r.Read()
	if errors.Is(err, keep.ErrDamaged) {
		var damage error
		damage, err = r.Change(func(*recordsByID) error { return nil })
		r.log.Warn("what the relay remembers of its VMs is damaged", "err", damage)
	}
	return known, err
}

// damaged returns the path of records that were set aside, or "".
func (r records) damaged() string {
	if kept, _ := filepath.Glob(r.Path + ".damaged-*"); len(kept) > 0 {
		return kept[0]
	}
	return ""
}

// put replaces the record of a VM.
func (r records) put(id string, rec record) error {
	_, err := r.Change(func(known *recordsByID) error {
		if *known == nil {
			*known = recordsByID{}
		}
		(*known)[id] = rec
		return nil
	})
	return err
}

// remove deletes a record. One that stays is harmless: its VM is not listed again.
func (r records) remove(id string) {
	_, _ = r.Change(func(known *recordsByID) error {
		delete(*known, id)
		return nil
	})
}

// idOf returns the id of a VM without a name: that of the record with its endpoint, or else of
// a record that still lacks its VM and fits, or else the endpoint.
func (known recordsByID) idOf(r row, all []row) string {
	fitting := ""
	for _, id := range slices.Sorted(maps.Keys(known)) {
		rec := known[id]
		if rec.Endpoint == r.endpoint {
			return id
		}
		if fitting == "" && rec.mayBe(r) && !slices.ContainsFunc(all, func(other row) bool { return other.name == id }) {
			fitting = id
		}
	}
	if fitting != "" {
		return fitting
	}
	return r.endpoint
}

// mayBe reports whether a VM without a name may be the one that the record still lacks: it
// has the right kind and was not there before.
func (rec record) mayBe(r row) bool {
	return r.name == unnamed && rec.Endpoint == "" && rec.Spec.Accelerator == r.spec.Accelerator && !slices.Contains(rec.Before, r.endpoint)
}
