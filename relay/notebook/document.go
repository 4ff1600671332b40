// Package notebook reads, edits and writes Jupyter notebook files: nbformat 4, as
// https://nbformat.readthedocs.io/en/latest/format_description.html describes it.
//
// It knows files and cells; it must not know where they come from or run anything. A notebook
// may come from anybody: reading is bounded, and no text in it selects a file. Files are never
// written anew: an edit replaces bytes, so all that it does not mean to change stays as it is.
// Start reading at Document.
package notebook

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"colabrelay/shared/bounded"
	"colabrelay/shared/lazy"
)

// Bounds of a notebook that is read or edited.
const (
	MaxBytes       = 256 << 20 // of the file
	MaxCells       = 10_000
	MaxSourceBytes = 4 << 20 // of one cell's source
	// maxVersions bounds a notebook before and after an edit together, which are in memory at the
	// same time. An edit that makes a larger notebook small is possible.
	maxVersions = 256 << 20
)

// Errors of a Document, besides bounded.ErrTooLong.
var (
	// ErrNotNotebook means that a file is damaged or no notebook at all. Its text says where.
	ErrNotNotebook = errors.New("not a Jupyter notebook")
	// ErrOldFormat means another major version of the format than 4.
	ErrOldFormat = errors.New("the notebook's format is not nbformat 4")
	// ErrCellChanged means that a handle of the form #index-hash8 names a cell whose source is
	// another one now.
	ErrCellChanged = errors.New("the cell has changed")
	// ErrNoIndex means that no cell has an index.
	ErrNoIndex = errors.New("no cell has this index")
)

// Document is a notebook file as bytes, with the places of its cells in them. An edit changes
// only the bytes of what it edits; if it fails, it changes nothing. Edits make new bytes, so a
// copy of the struct is a copy of the document. Goroutines may read a document together while none
// edits it.
type Document struct {
	text  []byte
	minor int
	most  int // bound of text, in bytes
	*index
}

// Parse reads a notebook; it keeps text, which must not change any more. The error is
// ErrNotNotebook, ErrOldFormat (another major version than 4), or bounded.ErrTooLong beyond
// MaxBytes, MaxCells, or MaxSourceBytes in one cell.
func Parse(text []byte) (*Document, error) { return parseUpTo(text, MaxBytes) }

func parseUpTo(text []byte, most int) (*Document, error) {
	if len(text) > most {
		return nil, fmt.Errorf("reading a notebook: %w", bounded.TooLong(int64(most)))
	}
	x, err := makeIndex(text)
	if err != nil {
		return nil, err
	}
	switch major := number(text, x.major); {
	case major > 0 && major != 4:
		return nil, oldFormat(major)
	case major != 4:
		return nil, fmt.Errorf("%w: it has no format version", ErrNotNotebook)
	case x.list.len() == 0:
		return nil, fmt.Errorf("%w: it has no list of cells", ErrNotNotebook)
	}
	d := &Document{text: text, most: most, minor: max(0, number(text, x.minor)), index: x}
	x.nameCells(d.minor)
	return d, nil
}

// oldFormat returns the error of another major version of the format than 4.
func oldFormat(major int) error {
	if major < 4 {
		return fmt.Errorf("%w but %d: open the notebook in Jupyter or Colab and save it, which converts it", ErrOldFormat, major)
	}
	return fmt.Errorf("%w but %d, which is newer than this program: look for an update of colab-relay", ErrOldFormat, major)
}

// New returns an empty notebook for Python, as nbformat writes it.
func New() *Document {
	text, err := Notebook{}.text()
	if err != nil {
		panic(err) // it depends on nothing
	}
	d, err := Parse(text)
	if err != nil {
		panic(err)
	}
	return d
}

// Bytes returns the file. Do not change it.
func (d *Document) Bytes() []byte { return d.text }

// Digest returns the hexadecimal SHA-256 of the file.
func (d *Document) Digest() string {
	sum := sha256.Sum256(d.text)
	return hex.EncodeToString(sum[:])
}

// Minor returns the minor version of the format: 5 for nbformat 4.5.
func (d *Document) Minor() int { return d.minor }

// Language returns the language of the code as the notebook names it; python if it names none.
func (d *Document) Language() string {
	switch {
	case d.language != "":
		return d.language
	case d.kernel.language != "":
		return d.kernel.language
	case !d.isPython():
		return d.kernel.name
	}
	return "python"
}

// IsPython reports whether the code is Python.
func (d *Document) IsPython() bool { return d.isPython() }

// Len returns the number of cells.
func (d *Document) Len() int { return len(d.cells) }

// part returns the JSON of a part of the file.
func (d *Document) part(at span) []byte { return d.text[at.start:at.end:at.end] }

// escapes are the bytes after the backslash of a short escape sequence, and unescaped what they
// stand for.
const (
	escapes   = `"\/bfnrt`
	unescaped = "\"\\/\b\f\n\r\t"
)

// decode returns the text that a JSON string stands for, which a scanner has passed. Half a
// surrogate pair becomes U+FFFD.
func decode(quoted []byte) string { return decoded(quoted, false) }

// decodeKept is decode that keeps halves of surrogate pairs.
func decodeKept(quoted []byte) string { return decoded(quoted, true) }

func decoded(quoted []byte, keep bool) string {
	inner := quoted[1 : len(quoted)-1]
	at := bytes.IndexByte(inner, '\\')
	if at < 0 {
		return string(inner)
	}
	text := make([]byte, 0, len(inner))
	for ; at >= 0; at = bytes.IndexByte(inner, '\\') {
		text, inner = append(text, inner[:at]...), inner[at:]
		r, length := unescape(inner)
		if half := unit(inner); keep && r == utf8.RuneError && utf16.IsSurrogate(half) {
			text = append(text, 0xe0|byte(half>>12), 0x80|byte(half>>6)&0xbf, 0x80|byte(half)&0xbf)
		} else {
			text = utf8.AppendRune(text, r)
		}
		inner = inner[length:]
	}
	return string(append(text, inner...))
}

// unescape returns the character that the escape sequence at the start of a text stands for, and
// the sequence's length.
func unescape(text []byte) (r rune, length int) {
	if text[1] != 'u' {
		return rune(unescaped[strings.IndexByte(escapes, text[1])]), 2
	}
	r = unit(text)
	if !utf16.IsSurrogate(r) {
		return r, 6
	}
	if r = utf16.DecodeRune(r, unit(text[6:])); r == utf8.RuneError {
		return r, 6
	}
	return r, 12
}

// unit returns the number in the sequence \uXXXX at the start of a text; 0 if there is none.
func unit(text []byte) rune {
	if !bytes.HasPrefix(text, []byte(`\u`)) {
		return 0
	}
	n, _ := strconv.ParseUint(string(text[2:6]), 16, 16)
	return rune(n)
}

// titleLine and paramLine are what Colab makes forms of.
var (
	titleLine = lazy.Regexp(`(?m)^[ \t]*#[ \t]*@title\b[ \t]*(.*)$`)
	paramLine = lazy.Regexp(`(?m)^[ \t]*([\pL_][\pL\pN_]*)[ \t]*=([^=\n].*)#[ \t]*@param\b`)
	options   = lazy.Regexp(`[ \t]*\{[^{}]*\}[ \t\r]*$`)
)

// maxTitle bounds a title, maxTitleLine a title with its options, both in bytes, and maxParams the
// parameters of a cell. The rest is ignored.
const (
	maxTitle     = 200
	maxTitleLine = 2000
	maxParams    = 200
)

// form returns the title and the parameters of a cell's form.
func form(source string) (title string, params []Param) {
	if !strings.Contains(source, "@title") && !strings.Contains(source, "@param") {
		return "", nil
	}
	if found := titleLine().FindStringSubmatch(source); found != nil {
		line := found[1][:min(len(found[1]), maxTitleLine)]
		title = strings.TrimSpace(options().ReplaceAllString(line, ""))
		title = strings.TrimSpace(strings.ToValidUTF8(title[:min(len(title), maxTitle)], ""))
	}
	for line := range strings.Lines(source) {
		if len(params) == maxParams {
			break
		}
		if !strings.Contains(line, "@param") { // expressions take their time
			continue
		}
		if found := paramLine().FindStringSubmatch(line); found != nil {
			params = append(params, Param{Name: found[1], Value: strings.TrimSpace(found[2])})
		}
	}
	return title, params
}

// compose returns the text of a new cell for a place: with the keys of the nearest cell, in its
// order and with its white space.
func (d *Document) compose(at int, c NewCell) ([]byte, error) {
	model := d.model(at, func(p *place) bool { return p.cellType == c.Type })
	if model < 0 {
		model = d.model(at, func(*place) bool { return true })
	}
	st := d.style()
	l := layout{style: st}
	var keys []string
	if model >= 0 {
		change := d.changing(model)
		l, keys = change.layout, change.keys()
	} else { // as deep as a cell is in the list of an object
		l.indent = st.unit + st.unit + st.unit
		if st.newline != "" {
			l.open, l.close = st.newline+l.indent, st.newline+st.unit+st.unit
		}
		l.separator, l.colon = st.comma+l.open, st.colon
	}
	var elements [][]byte
	for _, key := range d.keysOf(c.Type, keys) {
		value, err := d.valueOf(key, at, c, l)
		if err != nil {
			return nil, err
		}
		elements = append(elements, append(append(l.quote(nil, key), l.colon...), value...))
	}
	return l.lay(nil, "{}", elements), nil
}

// keysOf returns the keys of a new cell, in the order of a model.
func (d *Document) keysOf(t CellType, model []string) []string {
	need := []string{"cell_type", "id", "metadata", "source"}
	if t == Code {
		need = []string{"cell_type", "execution_count", "id", "metadata", "outputs", "source"}
	}
	need = slices.DeleteFunc(need, func(key string) bool { return key == "id" && d.minor < 5 })
	var keys []string
	for _, key := range model {
		if slices.Contains(need, key) && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	for _, key := range need {
		if !slices.Contains(keys, key) {
			keys = slices.Insert(keys, placeFor(key, keys, nil), key)
		}
	}
	return keys
}

// valueOf returns the value of a key of a new cell.
func (d *Document) valueOf(key string, at int, c NewCell, l layout) ([]byte, error) {
	switch key {
	case "cell_type":
		return l.write(nil, string(c.Type), l.indent)
	case "execution_count":
		return []byte("null"), nil
	case "id":
		return l.write(nil, newID(d.isTaken), l.indent)
	case "outputs":
		return []byte("[]"), nil
	case "source":
		if c.Source == "" {
			return []byte("[]"), nil
		}
		return d.writeLines(at, c.Source, l.indent), nil
	}
	metadata := map[string]any{}
	if len(c.Tags) > 0 {
		metadata["tags"] = c.Tags
	}
	if d.isColab(at) {
		metadata["id"] = newColabID(d.isTaken)
	}
	return l.write(nil, metadata, l.indent)
}

// isColab reports whether a cell next to a place has an id as Colab writes it.
func (d *Document) isColab(at int) bool {
	for i := max(0, at-1); i <= at && i < d.Len(); i++ {
		if d.cells[i].colab != "" {
			return true
		}
	}
	return false
}
