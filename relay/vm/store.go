package vm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"colabrelay/shared/keep"
)

// store is the record of VMs in a folder. Any number of programs may use it at once.
type store struct {
	dir  string
	file keep.File[recordFile]
}

func newStore(dir string) store {
	return store{dir, keep.File[recordFile]{
		Path: filepath.Join(dir, "vms.json"), What: "the record of VMs", Max: maxRecordFile, Check: (*recordFile).check,
	}}
}

// read returns all records. A damaged file is ErrDamaged; the next change renames it.
func (s store) read() ([]Record, error) {
	f, err := s.file.Read()
	return f.VMs, err
}

// change replaces the records by what f makes of them; an error of f changes nothing. A
// damaged file is renamed first, and a new record begins: damage then says so.
func (s store) change(f func([]Record) ([]Record, error)) (damage, err error) {
	damage, err = s.file.Change(func(r *recordFile) (err error) {
		leaveFuture(r.VMs)
		r.Version = recordVersion
		r.VMs, err = f(r.VMs)
		return err
	})
	if damage != nil {
		damage = fmt.Errorf("%w: check the VMs of your Google account with `colab-relay vm list`", damage)
	}
	return damage, err
}

// own reserves a VM for the caller until it calls release or its process ends: only the owner
// may start or stop the VM. It waits as long as ctx lasts.
func (s store) own(ctx context.Context, id string) (release func(), err error) {
	return keep.Lock(ctx, s.ownPath(id))
}

func (s store) ownPath(id string) string { return filepath.Join(s.dir, id+".lock") }

// isOwned reports whether some relay process starts or stops the VM now.
func (s store) isOwned(id string) bool { return keep.IsLocked(s.ownPath(id)) }

// update changes one record. It returns ErrStopped if somebody asked for the VM's end, or
// its record is gone.
func (s store) update(id string, f func(*Record)) error {
	_, err := s.change(func(all []Record) ([]Record, error) {
		r := find(all, id)
		if r == nil || r.Step == Stopping {
			return nil, ErrStopped
		}
		f(r)
		return all, nil
	})
	return err
}

// remove deletes a record, and the file of its lock: ids are never used again.
func (s store) remove(id string) error {
	_, err := s.change(func(all []Record) ([]Record, error) {
		return slices.DeleteFunc(all, func(r Record) bool { return r.ID == id }), nil
	})
	_ = os.Remove(s.ownPath(id))
	return err
}

// Step is how far the start of a VM has come. It is on disk before what follows begins, which
// can be done again.
type Step string

// Steps.
const (
	Asked    Step = "asked"    // Google was asked for the VM, or is about to be
	Created  Step = "created"  // the VM exists; so does that of a record with any other step
	Paired   Step = "paired"   // the runtime is stored under the VM's name
	Stopping Step = "stopping" // somebody asked for its end
)

// Record is what this computer knows of a VM that it started. It contains no secret.
type Record struct {
	ID           string    `json:"id"`
	Name         string    `json:"name"` // of the runtime
	Backend      string    `json:"backend"`
	Accelerators []string  `json:"accelerators"` // accelerators in the order in which they are tried
	Accelerator  string    `json:"accelerator"`  // the one that was asked for last, CPU for none
	HighRAM      bool      `json:"high_ram,omitempty"`
	Step         Step      `json:"step"`
	Asked        time.Time `json:"asked"`                 // when Google was asked for the VM last; zero before that
	Touched      time.Time `json:"touched,omitzero"`      // when a keep-alive was last sent for it
	KeyIDs       []string  `json:"key_ids,omitempty"`     // of the executor's secrets, by which its pairing is recognised
	Port         int       `json:"port,omitempty"`        // of the executor on the VM
	Via          Way       `json:"via,omitempty"`         // how the executor is reached
	Unconfirmed  bool      `json:"unconfirmed,omitempty"` // it is stopped before it was known to exist
	Failure      string    `json:"failure,omitempty"`     // why the last start ended
}

const (
	recordVersion = 1
	maxRecordFile = 1 << 20 // bytes
	// MaxRecords bounds the VMs of which this computer keeps a record.
	MaxRecords = 1000
	// maxFailure bounds the text of an error that is kept, in characters.
	maxFailure = 500
)

// ErrDamaged means that the record of VMs cannot be read. It is renamed, never deleted.
var ErrDamaged = keep.ErrDamaged

// recordFile is vms.json.
type recordFile struct {
	Version int      `json:"version"`
	VMs     []Record `json:"vms"`
}

// check says why a file that was read cannot be used.
func (f *recordFile) check() error {
	switch {
	case f.Version > recordVersion:
		return fmt.Errorf("%w (it has version %d, and this one knows up to %d)", keep.ErrNewer, f.Version, recordVersion)
	case f.Version < 1:
		return fmt.Errorf("its version is %d", f.Version)
	}
	for _, r := range f.VMs {
		if !idPattern().MatchString(r.ID) || r.Step == "" || checkName(r.Name) != nil || r.Backend == "" || len(r.Accelerators) == 0 {
			return fmt.Errorf("the VM %q", clip(r.ID))
		}
	}
	return nil
}

// leaveFuture corrects times that a clock which was ahead has written. Otherwise the VM would
// seem just asked for until then, and could not be confirmed as gone.
func leaveFuture(all []Record) {
	now := time.Now().UTC()
	for i, r := range all {
		if r.Asked.After(now) {
			all[i].Asked = now
		}
	}
}

// findID returns the record with that id, nil if there is none.
func findID(all []Record, id string) *Record {
	return findRecord(all, func(r Record) bool { return r.ID == id })
}

// findName returns the record of that name, nil if there is none.
func findName(all []Record, name string) *Record {
	return findRecord(all, func(r Record) bool { return r.Name == name })
}

func findRecord(all []Record, matches func(Record) bool) *Record {
	i := slices.IndexFunc(all, matches)
	if i < 0 {
		return nil
	}
	return &all[i]
}

// find returns the record with that id or name, nil if there is none.
func find(all []Record, idOrName string) *Record {
	return findRecord(all, func(r Record) bool { return r.ID == idOrName || r.Name == idOrName })
}
