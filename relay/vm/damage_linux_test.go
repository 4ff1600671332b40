package vm

import (
	"errors"
	"fmt"
	"testing"

	"colabrelay/shared/damage"
)

func TestADamagedListOfVMsIsKeptAndReported(t *testing.T) {
	record := Record{ID: NewID(), Name: "a", Backend: "api", Accelerators: []string{"T4"}, Step: Paired}
	damage.Files{
		Make: func(t testing.TB, dir string) {
			s := newStore(dir)
			_, err := s.change(func([]Record) ([]Record, error) { return []Record{record}, nil })
			if err := errors.Join(err, SaveLogin(dir, Login{Backend: "api"})); err != nil {
				t.Fatal(err)
			}
		},
		Use: func(t testing.TB, dir string) (found, said string) {
			s := newStore(dir)
			all, readErr := s.read()
			login, loginErr := LoadLogin(dir)
			damaged, err := s.change(func(all []Record) ([]Record, error) {
				return append(all, Record{ID: NewID(), Name: "new", Backend: "api", Accelerators: []string{"T4"}, Step: Paired}), nil
			})
			if after, err := s.read(); err == nil && find(after, "new") == nil {
				t.Errorf("a new VM is not recorded: %+v", after)
			}
			return fmt.Sprint(find(all, record.ID) != nil, login.Backend), fmt.Sprint(readErr, loginErr, damaged, err)
		},
		Damage:    []string{"vms.json", "login.json"},
		Rewritten: []string{"vms.json", "vms.lock"},
	}.Test(t)
}
