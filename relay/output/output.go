package output

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"colabrelay/shared/filename"
)

// OutputType is the kind of an output, as nbformat names it.
type OutputType string

// Output types.
const (
	Stream        OutputType = "stream"
	DisplayData   OutputType = "display_data"
	ExecuteResult OutputType = "execute_result"
	Error         OutputType = "error"
)

// Output is one output of a cell. Type determines which fields are written.
type Output struct {
	Type OutputType
	Name string // Stream: stdout or stderr
	Text string // Stream

	// Data is a MIME bundle: text as a string, base64 for pictures, and JSON for JSON types.
	Data           map[string]any
	Metadata       JSON // an object; nil for none
	ExecutionCount int  // ExecuteResult

	EName     string
	EValue    string
	Traceback []string
}

// Object returns the output as a notebook has it: exactly the keys of nbformat's schema, texts
// as lists of lines.
func (o *Output) Object() map[string]any {
	object := map[string]any{"output_type": string(o.Type)}
	switch o.Type {
	case Stream:
		object["name"], object["text"] = o.Name, SplitLines(o.Text)
	case Error:
		traceback := []string{}
		for _, text := range o.Traceback {
			traceback = append(traceback, ValidText(text))
		}
		object["ename"], object["evalue"], object["traceback"] = ValidText(o.EName), ValidText(o.EValue), traceback
	case ExecuteResult, DisplayData:
		object["data"], object["metadata"] = bundle(o.Data), map[string]any{}
		if o.Metadata != nil {
			object["metadata"] = o.Metadata
		}
		if o.Type == ExecuteResult {
			object["execution_count"] = Count(o.ExecutionCount)
		}
	}
	return object
}

func bundle(data map[string]any) map[string]any {
	written := map[string]any{}
	for mime, payload := range data {
		if text, ok := payload.(string); ok && isLines(mime) {
			payload = SplitLines(text)
		}
		written[mime] = payload
	}
	return written
}

// isLines reports whether nbformat writes a payload of this type as a list of lines.
func isLines(mime string) bool {
	return strings.HasPrefix(mime, "text/") || mime == "image/svg+xml" || mime == "application/javascript"
}

// isJSON reports whether a payload of this type is JSON and not a text.
func isJSON(mime string) bool {
	return mime == "application/json" || strings.HasPrefix(mime, "application/") && strings.HasSuffix(mime, "+json")
}

// Count returns an execution count as nbformat allows it.
func Count(n int) any {
	if n <= 0 {
		return nil
	}
	return n
}

// breaks end a line, as for Python's str.splitlines.
const breaks = "\n\r\v\f\x1c\x1d\x1e\u0085\u2028\u2029"

// EndsLine reports whether a text ends where SplitLines may divide one.
func EndsLine(text string) bool {
	last, _ := utf8.DecodeLastRuneInString(text)
	return strings.ContainsRune(breaks, last)
}

// SplitLines splits a text as Python's str.splitlines(keepends=True).
func SplitLines(text string) []string {
	lines := []string{}
	text = ValidText(text)
	for len(text) > 0 {
		at := strings.IndexAny(text, breaks)
		if at < 0 {
			return append(lines, text)
		}
		end := at + 1
		switch {
		case strings.HasPrefix(text[at:], "\r\n"), text[at] == 0xc2: // U+0085 has two bytes
			end = at + 2
		case text[at] == 0xe2:
			end = at + 3
		}
		lines = append(lines, text[:end])
		text = text[end:]
	}
	return lines
}

// ValidText returns text with a replacement for each sequence of bytes that is not UTF-8.
func ValidText(text string) string { return strings.ToValidUTF8(text, "\ufffd") }

// Limits bound the outputs of one cell. What is beyond a bound is left out, and an output at
// its place says so.
type Limits struct {
	Text     int   // bytes of stdout and stderr together; the middle is left out
	Outputs  int   // outputs; the middle is left out
	Payload  int64 // bytes of one picture or other payload
	Payloads int64 // bytes of all payloads and exceptions, as a notebook has them; the newest are left out
	// All bounds the payloads of all cells of a Collector together, in bytes; 0 does not. What
	// would exceed it, because a cell updates the displays of others, is left out.
	All int64
	// Kept bounds all cells of a Collector together, in bytes. Beyond it the oldest are no longer
	// changed by update_display_data from other cells.
	Kept int64
}

// ForNotebooks are the limits of outputs that are written into somebody's notebook.
var ForNotebooks = Limits{
	Text: 1 << 20, Outputs: 10_000, Payload: 10 << 20, Payloads: 32 << 20, All: 64 << 20, Kept: 16 << 20,
}

// ForDocuments are the limits of outputs in a document of their own, which should have all that
// the executor kept of a run.
var ForDocuments = Limits{
	Text: 64 << 20, Outputs: 100_000, Payload: 32 << 20, Payloads: 256 << 20, Kept: 512 << 20,
}

const (
	// maxUpdated bounds the displays of one id that an update changes: the newest.
	maxUpdated = 100
	// maxDepth bounds JSON payloads, because each level indents all that is in it.
	maxDepth = 32
	// maxLaidOut is up to how many bytes a JSON payload has a line for each of its values, as
	// nbformat writes it, unless it is then more than layout times as long.
	maxLaidOut    = 256 << 10
	alwaysLaidOut = 4 << 10
	layout        = 10
	// maxMetadata bounds the metadata of a display. An executor sends no longer ones.
	maxMetadata = 128 << 10
	// freePayloads is how many bytes of payloads a Collector has without a turn, and freeHeld how
	// many of all that it has.
	freePayloads = 1 << 20
	freeHeld     = 2 << 20
	// maxWidgets bounds the states of widgets, in bytes. An executor keeps no more of one kernel.
	maxWidgets = 16 << 20
	// minBlob is the least that a payload outside its event counts: executors send smaller ones in
	// the event. So the number of requests for one cell is bounded.
	minBlob = 64 << 10
	// perOutput is what each output counts besides its content.
	perOutput = 512
)

// SaveText stores the whole text of a cell that is too long for a notebook: it writes text at the
// offset in the cell's file, which ends there, and returns the name by which the notebook mentions
// the file. No text at offset 0 deletes it.
type SaveText func(key string, offset int64, text []byte) (name string, err error)

// spill is the file that has the whole text of a cell.
type spill struct {
	save    SaveText
	key     string
	active  bool
	full    bool
	name    string
	err     error
	size    int64 // of what is in the file for good
	pending []byte
}

const (
	maxSpill    = 256 << 20 // bytes of the file
	spillBuffer = 256 << 10 // how much text a spill collects before it writes
)

func (s *spill) write(text []byte) {
	if !s.active || s.full || s.err != nil || s.save == nil {
		return
	}
	if s.size+int64(len(s.pending)+len(text)) > maxSpill {
		s.full = true
		return
	}
	if s.pending = append(s.pending, text...); len(s.pending) >= spillBuffer {
		s.flush(nil)
	}
}

// flush writes what is pending, followed by a line that may still change.
func (s *spill) flush(line []byte) {
	if !s.active || s.save == nil || s.err != nil || len(s.pending)+len(line) == 0 {
		return
	}
	if s.full || s.size+int64(len(s.pending)+len(line)) > maxSpill {
		line = nil
	}
	s.name, s.err = s.save(s.key, s.size, append(s.pending, line...))
	s.size += int64(len(s.pending))
	s.pending = s.pending[:0]
}

// discard deletes the file.
func (s *spill) discard() {
	if s.name != "" {
		_, _ = s.save(s.key, 0, nil)
	}
	*s = spill{save: s.save, key: s.key}
}

// SaveIn returns a SaveText whose files are in dir, which is made when it is needed. A file is
// named after stem, such as the notebook's name, and the cell's key; a later text of the same cell
// replaces it. A link there leads nowhere outside dir. The notebook mentions the file as inside the
// folder mention, such as ~/saved: a notebook is passed on, and should not name its author.
func SaveIn(dir, mention, stem string) SaveText {
	return func(key string, offset int64, text []byte) (string, error) {
		name := filename.Clean(stem, true) + "-" + filename.Unique(key) + ".txt"
		err := saveAt(dir, name, offset, text)
		if about, ok := errors.AsType[*fs.PathError](err); ok {
			err = about.Err // the path is long, and names the author
		}
		return path.Join(filepath.ToSlash(mention), name), err
	}
}

func saveAt(dir, name string, offset int64, text []byte) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if offset == 0 {
		if err := root.Remove(name); len(text) == 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || info.Size() < offset {
		return errors.Join(err, fmt.Errorf("%q is shorter than recorded", name))
	}
	if _, err = file.WriteAt(text, offset); err != nil {
		return err
	}
	return errors.Join(file.Truncate(offset+int64(len(text))), file.Close())
}
