package kernelstate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"colabrelay/shared/contract"
)

// schema is the version of the manifest and of the data file's form.
const schema = 1

// maxManifest bounds a manifest's file, read or written.
const maxManifest = maxReport

// Names of the files of a version.
const (
	manifestFile = "manifest.json"
	dataFile     = "data.state"
)

// Manifest says what a version holds. The kernel's part of it comes from save.py.
type Manifest struct {
	Schema     int       `json:"schema"`
	Name       string    `json:"name"` // as the user gave it
	Version    string    `json:"version"`
	Created    time.Time `json:"created"` // when the save was asked for
	Runtime    string    `json:"runtime"`
	InstanceID string    `json:"instance_id"`
	KernelID   string    `json:"kernel_id"`
	Contents
}

// Contents is what the kernel tells of a state it wrote.
type Contents struct {
	Python        string            `json:"python"`
	Pickler       string            `json:"pickler"`
	Libraries     map[string]string `json:"libraries"` // package to version
	VariableCount int               `json:"variable_count"`
	Variables     []Variable        `json:"variables"` // at most 5,000 of them
	Modules       []Module          `json:"modules"`
	SkippedCount  int               `json:"skipped_count"`
	Skipped       []Omission        `json:"skipped"`            // at most 5,000
	Runs          []RunProgress     `json:"runs,omitempty"`     // chunked runs, at most 1,000
	Warnings      []string          `json:"warnings,omitempty"` // what was written and may not load again
	Bytes         int64             `json:"bytes"`              // of the data file
	SHA256        string            `json:"sha256"`             // of it, lower-case hex
}

// Variable is one name that was kept.
type Variable struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Bytes int64  `json:"bytes,omitempty"` // in the data file; what variables share counts once
}

// RunProgress is how far a chunked run had come whose variables are in a state.
type RunProgress struct {
	Key  string `json:"key"`
	Done int64  `json:"done"` // iterations
}

// Module is a name bound to a module, which is imported again.
type Module struct {
	Name   string `json:"name"`
	Module string `json:"module"`
}

// Omission is a name that could not be kept or brought back, and why.
type Omission struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

var digestForm = regexp.MustCompile(`^[0-9a-f]{64}$`)

// check finds what makes contents unusable.
func (c Contents) check() error {
	switch {
	case !digestForm.MatchString(c.SHA256):
		return errors.New("it names no SHA-256")
	case c.Bytes <= 0:
		return errors.New("it names no size")
	case c.Pickler == "":
		return errors.New("it names no pickler")
	}
	return nil
}

// readManifest reads and checks the manifest of the version in folder, and that its
// data file is there and has the size. The digest is checkData's to compare.
func readManifest(folder string) (Manifest, error) {
	text, err := readBounded(filepath.Join(folder, manifestFile), maxManifest)
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
		return m, damaged("its data file has %d bytes in place of %d", info.Size(), m.Bytes)
	}
	return m, nil
}

// parseManifest reads what a manifest's file holds.
func parseManifest(text []byte) (Manifest, error) {
	var m Manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return Manifest{}, damaged("its manifest is no JSON")
	}
	if m.Schema != schema {
		return Manifest{}, damaged("its manifest is of schema %d, and this relay reads %d", m.Schema, schema)
	}
	if err := m.check(); err != nil {
		return Manifest{}, damaged("its manifest is not whole: %v", err)
	}
	return m, nil
}

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}

// readBounded reads a file of at most most bytes.
func readBounded(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("over %d bytes", most)
	}
	return text, err
}

// saved is what the save operation reports.
type saved struct {
	Path     string   `json:"path"`
	Manifest Contents `json:"manifest"`
}

// prepared is what the prepare operation reports.
type prepared struct {
	Path   string `json:"path"`
	Free   int64  `json:"free"` // bytes of disk
	Python string `json:"python"`
}

// Loaded is what the restore operation reports.
type Loaded struct {
	Missing       bool       `json:"missing"` // the kernel does not wait for what was kept
	Damaged       string     `json:"damaged"` // why the file was refused, before anything was unpickled
	Python        string     `json:"python"`
	VariableCount int        `json:"variable_count"`
	Variables     []Variable `json:"variables"`
	Modules       []Module   `json:"modules"`
	FailedCount   int        `json:"failed_count"`
	Failed        []Omission `json:"failed"`
	Overwritten   []string   `json:"overwritten"` // names the kernel had before
	Warnings      []string   `json:"warnings"`
}

// manifestOf puts together what both sides know.
func (j *job) manifestOf(p pending, e contract.Execution, c Contents) Manifest {
	return Manifest{
		Schema: schema, Name: j.o.Name, Created: p.Started, Runtime: p.Runtime,
		InstanceID: p.InstanceID, KernelID: e.KernelID, Contents: c,
	}
}
