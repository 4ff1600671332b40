package main

import (
	"errors"
	"io/fs"
	"os"
	"sync"

	"colabrelay/shared/keep"
)

// readyInfo is the content of --ready-file. Pairing holds the secret.
type readyInfo struct {
	URL        string `json:"url"`
	LocalURL   string `json:"local_url"`
	KeyID      string `json:"key_id"`
	InstanceID string `json:"instance_id"`
	PID        int    `json:"pid"`
	Pairing    string `json:"pairing"`
}

// readyFile shows other programs that the executor is ready. Its zero value, without
// a path, does nothing.
type readyFile struct {
	path string

	mu      sync.Mutex
	written bool
	removed bool
}

// write creates or replaces the file atomically.
func (f *readyFile) write(info readyInfo) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.path == "" || f.removed {
		return nil
	}
	if _, err := os.Stat(f.path); f.written && errors.Is(err, fs.ErrNotExist) {
		return nil // its reader removed it because it holds the secret
	}
	err := keep.WriteJSON(f.path, info)
	f.written = f.written || err == nil
	return err
}

// remove removes the file if this executor wrote it. Later writes do nothing.
func (f *readyFile) remove() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.written {
		os.Remove(f.path)
	}
	f.removed = true
}
