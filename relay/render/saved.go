package render

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/keep"
)

// saved describes the text in an execution's folder: one contiguous part of the log, which
// later calls extend. Thus each byte is fetched and saved once, even if many calls read the
// execution at various offsets and at the same time.
type saved struct {
	Instance string           `json:"instance_id"`
	From     int64            `json:"from"`  // offset of the first event
	To       int64            `json:"to"`    // offset after the last one
	Bytes    map[string]int64 `json:"bytes"` // valid bytes of each stream's file
	Ended    bool             `json:"ended"` // the execution has no events after To
}

const (
	savedFile    = "saved.json"
	maxSavedFile = 64 << 10 // bytes; a larger one is not ours
)

// loadSaved returns the description in dir, or nil if there is none of that instance.
func loadSaved(dir, instance string) *saved {
	if dir == "" {
		return nil
	}
	b, err := bounded.ReadFile(filepath.Join(dir, savedFile), maxSavedFile)
	var s saved
	if err != nil || json.Unmarshal(b, &s) != nil || s.Instance != instance || s.Bytes == nil {
		return nil
	}
	return &s
}

func (s *saved) file(stream string) string {
	if s.From > 0 {
		return fmt.Sprintf("%s-from-%d.txt", stream, s.From)
	}
	return stream + ".txt"
}

// extend appends the text in the collector's spools. If another call was faster, its text
// is kept, and the next call continues after it.
func (c *Collector) extend() (*saved, error) {
	if c.opt.Dir == "" {
		return nil, errNoFolder
	}
	unlock, err := keep.Lock(context.Background(), filepath.Join(c.opt.Dir, "saved.lock")) // its owner only copies a file
	if err != nil {
		return nil, err
	}
	defer unlock()
	removeAbandoned(c.opt.Dir)
	now := loadSaved(c.opt.Dir, c.opt.Instance)
	if now == nil {
		now = &saved{Instance: c.opt.Instance, From: c.spoolFrom, To: c.spoolFrom, Bytes: map[string]int64{}}
	}
	if now.Ended || now.To != c.spoolFrom || c.next <= now.To && !c.ended {
		return now, nil
	}
	if err := usual.room(c.opt.Dir, 0); err != nil {
		return nil, err
	}
	for name, stream := range map[string]*stream{contract.Stdout: &c.stdout, contract.Stderr: &c.stderr} {
		size, err := stream.spool.appendTo(filepath.Join(c.opt.Dir, now.file(name)), now.Bytes[name])
		if err != nil {
			return nil, err
		}
		now.Bytes[name] = size
	}
	now.To, now.Ended = max(now.To, c.next), c.ended
	_, err = SaveFile(c.opt.Dir, savedFile, func(w io.Writer) error { return json.NewEncoder(w).Encode(now) })
	return now, err
}

// appendTo appends the text to the file at path, of which the first size bytes are valid,
// and returns the new size. It overwrites bytes after these, which a killed relay wrote.
func (s *spool) appendTo(path string, size int64) (int64, error) {
	if s.err != nil || s.bytes == s.cut { // nothing to append, or the limit was reached earlier
		return size, s.err
	}
	if s.cut > 0 {
		s.buf = append(s.buf, "\n[… the rest was not saved …]\n"...)
	}
	if size == 0 {
		if err := s.keep(path); err != nil {
			return 0, err
		}
		info, err := os.Stat(path)
		if err != nil {
			return 0, err
		}
		return info.Size(), nil
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Size() < size {
		return 0, errors.Join(err, fmt.Errorf("%q is shorter than recorded", path))
	}
	if err := f.Truncate(size); err != nil {
		return 0, err
	}
	if _, err := f.Seek(size, io.SeekStart); err != nil {
		return 0, err
	}
	n, err := s.copyTo(f)
	return size + n, err
}

// spoolFor returns a spool for the text of a stream that is not saved yet.
func (s *saved) spoolFor(dir, stream string) spool {
	left := int64(maxSpool)
	if s != nil {
		left -= s.Bytes[stream]
	}
	return spool{dir: dir, name: stream, limit: left}
}

// lastEvents is how many saved events are read again after a skip, for the newest text, the
// result or the error.
const lastEvents = 16

// HasSaved reports whether the text is saved already, from the first event on.
func (c *Collector) HasSaved() bool {
	return c.saved != nil && c.saved.From <= c.opt.From && c.opt.From < c.saved.To
}

// Skip skips events that are saved already and would not be shown: those between the head,
// once it is complete, and the newest ones. The next event to add is at Next.
func (c *Collector) Skip() {
	if c.opt.Page || !c.complete || c.saved == nil || c.saved.From > c.next || c.saved.To-lastEvents <= c.next {
		return
	}
	c.next = c.saved.To - lastEvents
	for name, stream := range map[string]*stream{contract.Stdout: &c.stdout, contract.Stderr: &c.stderr} {
		if c.saved.Bytes[name] > 0 {
			stream.skip()
		}
	}
}
