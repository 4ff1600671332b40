package main

import (
	"errors"
	"io/fs"
	"os"
	"sync"
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

// readyFile tells other programs that the executor is ready. Its zero value, without
// a path, does nothing.
type readyFile struct {
	path string

	mu      sync.Mutex
	written bool
	removed bool
}

// write makes the file appear, or replaces it, at once.
func (f *readyFile) write(info readyInfo) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.path == "" || f.removed {
		return nil
	}
	if _, err := os.Stat(f.path); f.written && errors.Is(err, fs.ErrNotExist) {
		return nil // its reader took it away, since it holds the secret
	}
	err := writeJSON(f.path, info)
	f.written = f.written || err == nil
	return err
}

// remove takes away what this executor wrote, for good.
func (f *readyFile) remove() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.written {
		os.Remove(f.path)
	}
	f.removed = true
}
