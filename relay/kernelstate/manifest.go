package kernelstate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
)

// schema is the version of the manifest's and the data file's format.
const schema = 1

// maxManifest bounds a manifest's file, read or written.
const maxManifest = 32 << 20

// Names of the files of a version.
const (
	manifestFile = "manifest.json"
	dataFile     = "data.state"
)

// Manifest describes a version. The kernel reports its Contents.
type Manifest struct {
	Schema     int       `json:"schema"`
	Name       string    `json:"name"` // as the user gave it
	Version    string    `json:"version"`
	Created    time.Time `json:"created"` // when the save was started
	Runtime    string    `json:"runtime"`
	InstanceID string    `json:"instance_id"`
	KernelID   string    `json:"kernel_id"`
	Contents
}

// Contents describes the data file that the kernel wrote.
type Contents struct {
	Python        string            `json:"python"`
	Pickler       string            `json:"pickler"`
	Libraries     map[string]string `json:"libraries"` // versions by package
	VariableCount int               `json:"variable_count"`
	Variables     []Variable        `json:"variables"` // at most 5,000
	Modules       []Module          `json:"modules"`
	SkippedCount  int               `json:"skipped_count"`
	Skipped       []Omission        `json:"skipped"`            // at most 5,000
	Runs          []RunProgress     `json:"runs,omitempty"`     // chunked runs, at most 1,000
	Warnings      []string          `json:"warnings,omitempty"` // about variables that were saved and may not load, or without a part
	Bytes         int64             `json:"bytes"`              // of the data file
	SHA256        string            `json:"sha256"`             // of the data file, lower-case hex
}

// Variable is a variable that was saved.
type Variable struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Bytes int64  `json:"bytes,omitempty"` // in the data file; an object that variables share counts once
}

// RunProgress is how many iterations of a chunked run a state contains.
type RunProgress struct {
	Key  string `json:"key"`
	Done int64  `json:"done"`
}

// Module is a name that refers to a module. A restore imports the module again.
type Module struct {
	Name   string `json:"name"`
	Module string `json:"module"`
}

// Omission is a variable that was not saved or not restored, and the reason.
type Omission struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// check returns why the contents are unusable.
func (c Contents) check() error {
	switch {
	case !contract.SHA256Pattern().MatchString(c.SHA256):
		return errors.New("the SHA-256 is missing")
	case c.Bytes <= 0:
		return errors.New("the size is missing")
	case c.Pickler == "":
		return errors.New("the pickler is missing")
	}
	return nil
}

// readManifest reads and checks the manifest of the version in folder, and checks that the
// data file exists and has the right size. checkData compares its digest.
func readManifest(folder string) (Manifest, error) {
	text, err := bounded.ReadFile(filepath.Join(folder, manifestFile), maxManifest)
	if err != nil {
		return Manifest{}, damaged("its manifest can't be read: %v", err)
	}
	m, err := parseManifest(text)
	if err != nil {
		return Manifest{}, err
	}
	info, err := os.Stat(filepath.Join(folder, dataFile))
	switch {
	case err != nil || !info.Mode().IsRegular():
		return m, damaged("its data file is missing")
	case info.Size() != m.Bytes:
		return m, damaged("its data file has %d bytes instead of %d", info.Size(), m.Bytes)
	}
	return m, nil
}

// parseManifest reads and checks a manifest's text.
func parseManifest(text []byte) (Manifest, error) {
	var m Manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return Manifest{}, damaged("its manifest is not JSON")
	}
	if m.Schema != schema {
		return Manifest{}, damaged("its manifest has schema %d, and this relay reads schema %d", m.Schema, schema)
	}
	if err := m.check(); err != nil {
		return Manifest{}, damaged("its manifest is incomplete: %v", err)
	}
	return m, nil
}

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}

// saved is what the save operation reports.
type saved struct {
	Path     string   `json:"path"`
	Manifest Contents `json:"manifest"`
}

// prepared is what the prepare operation reports.
type prepared struct {
	Path string `json:"path"`
}

// Loaded is what the restore operation reports.
type Loaded struct {
	Damaged       string     `json:"damaged"` // why the kernel refused the file, before it unpickled anything
	VariableCount int        `json:"variable_count"`
	Variables     []Variable `json:"variables"`
	Modules       []Module   `json:"modules"`
	FailedCount   int        `json:"failed_count"`
	Failed        []Omission `json:"failed"`
	Overwritten   []string   `json:"overwritten"` // names that existed in the kernel before
	Warnings      []string   `json:"warnings"`
}

// manifestOf combines what the relay and the kernel know of a save.
func (j *job) manifestOf(p pending, e contract.Execution, c Contents) Manifest {
	return Manifest{
		Schema: schema, Name: j.o.Name, Created: p.Started, Runtime: j.o.Runtime,
		InstanceID: p.InstanceID, KernelID: e.KernelID, Contents: c,
	}
}

// Listed is a state on this computer, with all its versions.
type Listed struct {
	Name          string    `json:"name"` // as the user gave it; the folder's if no manifest can be read
	Runtime       string    `json:"runtime"`
	Created       time.Time `json:"created"`        // of the newest good version; zero if there is none
	VariableCount int       `json:"variable_count"` // of that version
	Python        string    `json:"python"`
	Versions      []string  `json:"versions"`   // names, newest first
	SizeBytes     int64     `json:"size_bytes"` // of the versions that can be restored
	Damaged       int       `json:"damaged"`    // versions that cannot be restored
	Path          string    `json:"path"`       // its folder
	Newest        *Manifest `json:"-"`          // of the newest good version; nil if there is none
}

// maxNames bounds List.
const maxNames = 100

// List returns all states below dir, newest first, at most 100. It does not compare the
// digests of their data.
func List(dir string) ([]Listed, error) {
	root, found := filepath.Join(dir, statesFolder), []Listed{}
	entries, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing the saved states: %w", err)
	}
	for _, e := range entries {
		s := Listed{Name: e.Name(), Path: filepath.Join(root, e.Name())}
		if s.Versions, err = versions(s.Path); err == nil && len(s.Versions) > 0 && len(found) < maxNames {
			s.describe()
			found = append(found, s)
		}
	}
	sort.SliceStable(found, func(i, j int) bool { return found[i].Created.After(found[j].Created) })
	return found, nil
}

// describe reads the manifests of the versions.
func (s *Listed) describe() {
	for _, v := range s.Versions {
		m, err := readManifest(filepath.Join(s.Path, v))
		switch {
		case err != nil:
			s.Damaged++
			continue
		case s.Newest == nil:
			s.Newest = &m
			s.Name, s.Runtime, s.Created, s.VariableCount, s.Python = m.Name, m.Runtime, m.Created, m.VariableCount, m.Python
		}
		s.SizeBytes += m.Bytes
	}
}

// maxPath bounds a path that a kernel reports, in bytes.
const maxPath = 4096

// maxBytes bounds the size of a state, because the user's code in the kernel could report
// any size. Only the largest of Colab's VMs have this much memory.
const maxBytes = 100 << 30

// ErrUntrustedReport is a report that the relay's own code in the kernel would not make: a
// path outside its folder, or a size or list over its bound.
var ErrUntrustedReport = errors.New("the kernel's report on a state can't be trusted")

// checkPlace refuses a path that is not data.state in a folder such as save.py makes. The
// user's code runs in the kernel that reports the path, and must not be able to make the
// relay download any other file.
func checkPlace(remote string) error {
	folder := path.Base(path.Dir(remote))
	switch {
	case len(remote) > maxPath, !path.IsAbs(remote), path.Clean(remote) != remote,
		path.Base(remote) != dataFile, !strings.HasPrefix(folder, contract.StateFolderPrefix) || folder == contract.StateFolderPrefix:
		return fmt.Errorf("%w: it names the file %.100q", ErrUntrustedReport, remote)
	}
	return nil
}
