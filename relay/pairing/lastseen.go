package pairing

import (
	"cmp"
	"time"
)

// maxLastSeen bounds the entries of the file; the oldest is dropped first. There are
// fewer pairings, but each value that COLAB_SECRET ever had makes an entry too.
const maxLastSeen = 256

// LastSeen is what the relay last saw of a runtime: which VM, and which kernel on it.
type LastSeen struct {
	InstanceID string    `json:"instance_id,omitempty"`
	KernelID   string    `json:"kernel_id,omitempty"`
	Since      time.Time `json:"since"` // when it was first seen
}

// Updated returns what is seen of a runtime that now has the kernel kernelID, on the VM
// instanceID unless that is empty.
func (s LastSeen) Updated(instanceID, kernelID string) LastSeen {
	s.InstanceID = cmp.Or(instanceID, s.InstanceID)
	if kernelID != s.KernelID {
		s.KernelID, s.Since = kernelID, time.Now()
	}
	return s
}

// Loss says what became of the kernel that was seen before, if another one is seen now.
func (s LastSeen) Loss(now LastSeen) string {
	switch {
	case s.KernelID == "" || s.KernelID == now.KernelID:
		return ""
	case s.InstanceID != "" && s.InstanceID != now.InstanceID:
		return "a new kernel on a new VM: the variables, functions and imports of the old one are gone, and so are its files, except those on Drive"
	}
	return "a new kernel: the variables, functions and imports of the old one are gone"
}

// Key names a runtime in the file of what was last seen. COLAB_URL may differ from one
// host's settings to another's, so for EnvName the key includes the secret's key id.
func (r Runtime) Key() string {
	if r.Name == EnvName {
		return EnvName + " " + r.Secret.KeyID()
	}
	return r.Name
}

// LastSeen returns what was last seen of the runtime with that Key. It is zero when
// nothing was seen, and also when the file cannot be read, because it only serves hints.
func (s *Store) LastSeen(key string) LastSeen {
	entries, _ := s.seen.Read()
	return entries[key]
}

// SaveLastSeen records what was seen of the runtime with that Key, for later relays.
func (s *Store) SaveLastSeen(key string, seen LastSeen) error {
	_, err := s.seen.Change(func(entries *map[string]LastSeen) error { // a damaged file loses only hints
		if *entries == nil {
			*entries = map[string]LastSeen{}
		}
		(*entries)[key] = seen
		for len(*entries) > maxLastSeen {
			delete(*entries, oldest(*entries))
		}
		return nil
	})
	return err
}

// forget drops the entry of that Key.
func (s *Store) forget(key string) error {
	if s.LastSeen(key) == (LastSeen{}) {
		return nil
	}
	_, err := s.seen.Change(func(entries *map[string]LastSeen) error {
		delete(*entries, key)
		return nil
	})
	return err
}

func oldest(entries map[string]LastSeen) (key string) {
	for k, seen := range entries {
		if key == "" || seen.Since.Before(entries[key].Since) {
			key = k
		}
	}
	return key
}
