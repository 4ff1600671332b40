package kernelstate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"time"
)

// Listed is a state on this computer, with all its versions.
type Listed struct {
	Name          string    `json:"name"` // as the user gave it
	Runtime       string    `json:"runtime"`
	Created       time.Time `json:"created"`        // of the newest good version; zero if there is none
	VariableCount int       `json:"variable_count"` // of that version
	Python        string    `json:"python"`
	Versions      []string  `json:"versions"`   // names, newest first
	SizeBytes     int64     `json:"size_bytes"` // of the versions that can be restored
	Damaged       int       `json:"damaged"`    // versions that cannot be restored
	Path          string    `json:"path"`       // its folder
}

// List returns all states below dir, newest first, at most 100. It does not compare the
// digests of their data.
func List(dir string) ([]Listed, error) {
	root := filepath.Join(dir, statesFolder)
	entries, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing the saved states: %w", err)
	}
	found := []Listed{}
	for _, e := range entries {
		folder := filepath.Join(root, e.Name())
		all, err := versions(folder)
		if err != nil || len(all) == 0 || len(found) == maxNames {
			continue
		}
		found = append(found, describe(folder, all))
	}
	sort.SliceStable(found, func(i, j int) bool { return found[i].Created.After(found[j].Created) })
	return found, nil
}

// describe returns the state in folder with these versions. The name is the folder's if no
// manifest can be read.
func describe(folder string, all []version) Listed {
	s := Listed{Name: filepath.Base(folder), Path: folder}
	found := false
	for _, v := range all {
		s.Versions = append(s.Versions, v.name)
		m, err := readManifest(filepath.Join(folder, v.name))
		switch {
		case err != nil:
			s.Damaged++
			continue
		case !found:
			found = true
			s.Name, s.Runtime, s.Created, s.VariableCount, s.Python = m.Name, m.Runtime, m.Created, m.VariableCount, m.Python
		}
		s.SizeBytes += m.Bytes
	}
	return s
}
