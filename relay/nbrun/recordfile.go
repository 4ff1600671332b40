package nbrun

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"colabrelay/relay/checkpoint"
	"colabrelay/relay/dataflow"
	"colabrelay/relay/notebook"
	"colabrelay/relay/plain"
	"colabrelay/shared/contract"
)

// Name is the name of the checkpoint of the notebook at this path, links resolved: a part of the
// file's name, for people, and a hash of the path.
func Name(realPath string) string {
	stem := strings.TrimSuffix(filepath.Base(realPath), filepath.Ext(realPath))
	if len(stem) > 60 {
		stem = strings.ToValidUTF8(stem[:60], "")
	}
	return "notebook " + stem + " " + hash(realPath)[:12]
}

// Load reads the record of the notebook at path. It returns checkpoint.ErrNotFound if no cell
// of it was run through this computer, or ErrDamaged.
func Load(dir, path string) (*Record, error) {
	file, err := notebook.OpenFile(path, dir)
	if err != nil {
		return nil, err
	}
	return loadRecord(dir, file.Path())
}

func loadRecord(dir, realPath string) (*Record, error) {
	name := Name(realPath)
	entry, err := checkpoint.Load(dir, name, nil)
	switch {
	case errors.Is(err, checkpoint.ErrCorrupt), errors.Is(err, checkpoint.ErrTooLarge):
		return nil, fmt.Errorf("%w: %q", ErrDamaged, checkpoint.Path(dir, name))
	case err != nil:
		return nil, err
	}
	var r Record
	if json.Unmarshal(entry.Data, &r) != nil || !r.isConsistent() || r.Path != realPath {
		return nil, fmt.Errorf("%w: %q", ErrDamaged, checkpoint.Path(dir, name))
	}
	r.fill()
	return &r, nil
}

// IsNotebook reports whether a checkpoint belongs to the runs of a notebook.
func IsNotebook(e checkpoint.Entry) bool {
	var head struct {
		Kind string `json:"kind"`
	}
	return json.Unmarshal(e.Data, &head) == nil && head.Kind == kind
}

func newRecord(realPath string) *Record {
	now := time.Now().UTC()
	r := &Record{Kind: kind, Version: version, Path: realPath, CreatedAt: now, UpdatedAt: now}
	r.fill()
	return r
}

// fill makes the maps that are missing, and counts.
func (r *Record) fill() {
	if r.History == nil {
		r.History = map[string]LastRun{}
	}
	if r.Facts == nil {
		r.Facts = map[string]dataflow.Facts{}
	}
	if r.Code == nil {
		r.Code = map[string]string{}
	}
	r.codeBytes, r.passing = 0, map[string]dataflow.Facts{}
	for _, text := range r.Code {
		r.codeBytes += len(text)
	}
}

// isConsistent reports whether the parts of the record fit each other.
func (r *Record) isConsistent() bool {
	if r.Kind != kind || r.Version != version {
		return false
	}
	planned := map[string]bool{}
	for _, c := range r.Run.Plan {
		if c.Handle == "" || planned[c.Handle] {
			return false
		}
		planned[c.Handle] = true
	}
	for _, f := range r.Run.Flights {
		if f == nil || !planned[f.Handle] || !contract.RequestIDPattern.MatchString(f.RequestID) {
			return false
		}
	}
	for _, s := range r.Singles {
		if s == nil || !contract.RequestIDPattern.MatchString(s.RequestID) {
			return false
		}
	}
	return r.Run.ID != "" || len(r.Run.Plan) == 0
}

// prune bounds what grows from run to run: facts of sources that are in no plan, no history and
// no run of this kernel are dropped.
func (r *Record) prune() {
	if extra := len(r.Life.Runs) - maxRuns; extra > 0 {
		r.Life.Runs = r.Life.Runs[extra:]
	}
	if len(r.Facts) <= maxHistory && len(r.History) <= maxHistory {
		return
	}
	needed := map[string]bool{}
	handles := map[string]bool{}
	for _, c := range r.Run.Plan {
		needed[c.Sent], handles[c.Handle] = true, true
	}
	for _, ran := range r.Life.Runs {
		needed[ran.Sent] = true
	}
	for sent := range r.Facts {
		if !needed[sent] {
			delete(r.Facts, sent)
		}
	}
	for handle := range r.History {
		if !handles[handle] {
			delete(r.History, handle)
		}
	}
}

// shed makes a record that is too large small enough: it drops facts, which the kernel finds
// again, and details of failures. What a run needs to go on stays.
func (r *Record) shed() {
	clear(r.Facts)
	for i := range r.Run.Plan {
		c := &r.Run.Plan[i]
		c.Attempts = c.Attempts[max(0, len(c.Attempts)-2):] // one may be in flight
		for k := range c.Attempts {
			if e := c.Attempts[k].Error; e != nil {
				e.EName, e.EValue, e.Reason = shorten(e.EName, shedBytes), shorten(e.EValue, shedBytes), shorten(e.Reason, shedBytes)
			}
		}
		c.SkippedBecause = c.SkippedBecause[:min(len(c.SkippedBecause), 1)]
		for k := range c.SkippedBecause {
			names := &c.SkippedBecause[k].Names
			*names = (*names)[:min(len(*names), 1)]
		}
	}
}

// summary says in a few words how far a run is.
func (r *RunRecord) summary() string {
	done := 0
	for i := range r.Plan {
		if !r.Plan[i].pending() {
			done++
		}
	}
	return fmt.Sprintf("%d of %s were done", done, plain.Count(len(r.Plan), "cell"))
}
