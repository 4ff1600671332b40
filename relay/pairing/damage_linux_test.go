package pairing

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"colabrelay/shared/auth"
	"colabrelay/shared/damage"
)

func TestDamagedListsAreKeptAndReported(t *testing.T) {
	secret := auth.GenerateSecret()
	damage.Files{
		Make: func(t testing.TB, dir string) {
			s := Open(dir)
			put(t, s, Runtime{Name: "a", URL: "https://a.example", Secret: secret}, Runtime{Name: "b", URL: "https://b.example", Secret: secret})
			must(t, s.SaveLastSeen("a", LastSeen{InstanceID: "i", KernelID: "k", Since: time.Unix(1, 0)}))
		},
		Use: func(t testing.TB, dir string) (found, said string) {
			s := Open(dir)
			list, err := s.List()
			for _, r := range list {
				found += fmt.Sprintln(r.Name, r.URL, r.Secret.Equal(secret))
			}
			found += s.LastSeen("a").KernelID
			before, putErr := s.Put(made(t, "new"))
			if putErr != nil {
				return found, fmt.Sprint(err, putErr) // one of a newer relay is not replaced
			}
			if _, err := s.Get("new"); err != nil {
				t.Errorf("a new pairing: %v", err)
			}
			if err := s.SaveLastSeen("new", LastSeen{KernelID: "k2"}); err != nil || s.LastSeen("new").KernelID != "k2" {
				t.Errorf("what was last seen cannot be stored again: %v", err)
			}
			return found, fmt.Sprint(errors.Join(err, before.Damage))
		},
		Damage:    []string{"runtimes.json", "lives.json"},
		Rewritten: []string{"runtimes.json", "lives.json", "runtimes.lock", "lives.lock"},
		Worthless: []string{"lives.json"}, // only serves hints
	}.Test(t)
}
