package vm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

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
