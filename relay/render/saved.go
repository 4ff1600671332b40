package render

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"

	"colabrelay/relay/output"
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
	// maxUnsaved is how much text waits in memory. What is shorter than an answer is never saved.
	maxUnsaved = 512 << 10
	// maxStream bounds the saved text of a stream. An executor keeps no longer log, and an
	// execution that never ends would fill the laptop's disk.
	maxStream = 256 << 20
	// lastEvents is how many saved events are read again after a skip, for the newest text, the
	// result or the error.
	lastEvents = 16
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

// unsaved is the text of the events from an offset on that may be saved.
type unsaved struct {
	off   bool // nothing is saved any more
	err   error
	from  int64
	bytes int
	text  map[string][]byte // of each stream
}

// add adds the text of the newest event.
func (u *unsaved) add(stream, text string, offset int64) {
	if u.off || offset < u.from {
		return
	}
	if u.text == nil {
		u.text = map[string][]byte{}
	}
	u.text[stream] = append(u.text[stream], text...)
	u.bytes += len(text)
}

// extend saves the text that is not saved yet. It keeps its first error and saves no more then,
// because a full disk on the laptop must not fail the execution. If another call was faster, its
// text is kept, and the next call continues after it.
func (c *Collector) extend() error {
	u := &c.unsaved
	if u.err == nil && !u.off {
		u.err = c.append()
	}
	u.text, u.bytes = nil, 0
	u.off = u.off || u.err != nil
	return u.err
}

func (c *Collector) append() error {
	if err := usual.room(c.opt.Dir, int64(c.unsaved.bytes)); err != nil {
		return err
	}
	unlock, err := keep.Lock(context.Background(), filepath.Join(c.opt.Dir, "saved.lock")) // its owner only appends to files
	if err != nil {
		return err
	}
	defer unlock()
	now := loadSaved(c.opt.Dir, c.opt.Instance)
	if now == nil {
		now = &saved{Instance: c.opt.Instance, From: c.unsaved.from, To: c.unsaved.from, Bytes: map[string]int64{}}
	}
	c.saved = now
	if c.unsaved.off = now.Ended || now.To != c.unsaved.from; c.unsaved.off || c.next <= now.To && !c.ended {
		return nil
	}
	for stream, text := range c.unsaved.text {
		left := maxStream - now.Bytes[stream]
		switch {
		case left < 0 || len(text) == 0:
			continue
		case int64(len(text)) > left:
			text = append(text[:left:left], "\n[… the rest was not saved …]\n"...)
		}
		if err := output.SaveAt(c.opt.Dir, now.file(stream), now.Bytes[stream], text); err != nil {
			return err
		}
		now.Bytes[stream] += int64(len(text))
	}
	now.To, now.Ended = max(now.To, c.next), c.ended
	c.unsaved.from = now.To
	_, err = SaveFile(c.opt.Dir, savedFile, func(w io.Writer) error { return json.NewEncoder(w).Encode(now) })
	return err
}

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

// viewSaved names the files of the streams whose texts are not shown as a whole; of a page those
// that it is a part of.
func (c *Collector) viewSaved(v *View, cut []string) {
	switch {
	case c.opt.Page && c.HasSaved():
		for _, kind := range []string{contract.Stdout, contract.Stderr} {
			if c.saved.Bytes[kind] > 0 {
				cut = append(cut, kind)
			}
		}
	case c.opt.Page || len(cut) == 0 && c.saved == nil:
		return
	}
	err := cmp.Or(c.extend(), c.noSaved())
	for _, kind := range cut {
		path := ""
		if err == nil {
			path = filepath.Join(c.opt.Dir, c.saved.file(kind))
		}
		v.saved(kind, path, err)
	}
}

// noSaved is the error of a run of which nothing is saved.
func (c *Collector) noSaved() error {
	if c.saved == nil {
		return errNoFolder
	}
	return nil
}
