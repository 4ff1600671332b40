package history

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"

	"colabrelay/shared/bounded"
)

// edgeBytes is how much of the beginning and of the end of a run's files a summary reads. The
// last state is there unless a program was killed while it wrote.
const edgeBytes = 64 << 10

// summary returns a run without reading all of it.
func summary(dir, key string) (Run, error) {
	c := &contents{}
	first, size, err := edge(filepath.Join(dir, key+headSuffix), false)
	if err != nil {
		return Run{}, err
	}
	beginning, rest, _ := bytes.Cut(first, []byte("\n"))
	c.addLine(beginning)
	found := false
	for _, suffix := range []string{tailSuffix, oldSuffix} {
		last, _, err := edge(filepath.Join(dir, key+suffix), true)
		if err == nil && !found {
			found = c.addStates(last)
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return Run{}, err
		}
	}
	if !found && size > int64(len(first)) {
		if rest, _, err = edge(filepath.Join(dir, key+headSuffix), true); err != nil {
			return Run{}, err
		}
	}
	if c.head.Version != version || !found && !c.addStates(rest) {
		all, err := read(dir, key)
		if err != nil {
			return Run{}, err
		}
		c = all
	}
	return c.run(key), nil
}

// edge reads the first or last edgeBytes of a file.
func edge(path string, last bool) (text []byte, size int64, err error) {
	f, err := bounded.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	from := int64(0)
	if last {
		from = max(0, info.Size()-edgeBytes)
	}
	text, err = io.ReadAll(io.NewSectionReader(f, from, edgeBytes))
	return text, info.Size(), err
}

func (c *contents) addLine(text []byte) bool {
	var l line
	if decode(append(slices.Clip(text), '\n'), &l) != nil {
		return false
	}
	c.add(l)
	return l.State != nil
}

// addStates adds the complete state lines of text, and reports whether there is one.
func (c *contents) addStates(text []byte) (found bool) {
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	for each := range bytes.Lines(text) {
		if bytes.HasPrefix(each, []byte(`{"state"`)) && c.addLine(bytes.TrimSuffix(each, []byte("\n"))) {
			found = true
		}
	}
	return found
}
