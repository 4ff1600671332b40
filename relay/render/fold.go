package render

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/ansi/parser"

	"colabrelay/shared/bounded"
)

// Bounds of a folder's memory.
const (
	foldRows   = 12      // rows that cursor movements can still change
	foldColumn = 8 << 10 // runes of one row; a longer line is emitted in pieces
	foldEscape = 4 << 10 // bytes of an escape sequence; longer ones are discarded
	// foldWidth is how far to the right of a row's end the cursor writes, as a terminal has a
	// width. Without it, five bytes that erase a row and write one character made 8,192 blanks:
	// 2 MB of them took a minute.
	foldWidth = 256
)

// blanks are what erases part of a row.
var blanks = []rune(strings.Repeat(" ", foldColumn))

// folder turns terminal output into the text that a person sees at the end. It applies
// carriage returns, backspaces, erasures and small cursor movements, and drops colours and
// titles. It passes rows that can no longer change to emit, in order.
type folder struct {
	emit   func(text string)
	parser *ansi.Parser // only for escape sequences; nil before the first one
	escape int          // bytes of the open sequence, 0 in plain text
	rows   []row        // the newest rows; none before the first write
	y      int          // the row written to
}

type row struct {
	cells   []rune
	x       int
	redrawn bool // overwritten at least once: trailing blanks are a progress bar's padding
}

// write folds s, which may begin and end anywhere, even inside an escape sequence.
func (f *folder) write(s string) {
	if f.rows == nil {
		f.rows = make([]row, 1, foldRows+1)
	}
	for i := 0; i < len(s); {
		b := s[i]
		switch {
		case f.escape > 0 || b == 0x1b:
			f.advance(b)
			i++
		case b < 0x20 || b == 0x7f:
			f.control(b)
			i++
		case b < utf8.RuneSelf:
			f.put(rune(b))
			i++
		default:
			r, n := utf8.DecodeRuneInString(s[i:])
			f.put(r)
			i += n
		}
	}
}

// advance parses one byte of an escape sequence. A line break ends any sequence, because a
// stray OSC introducer would otherwise swallow all output after it.
func (f *folder) advance(b byte) {
	if f.parser == nil {
		f.parser = ansi.NewParser()
		f.parser.SetDataSize(64)
		f.parser.SetHandler(ansi.Handler{HandleCsi: f.csi})
	}
	f.escape++
	if b == '\n' || f.escape > foldEscape {
		f.parser.Reset()
		f.escape = 0
		f.control(b)
		return
	}
	f.parser.Advance(b)
	if f.parser.State() == parser.GroundState {
		f.escape = 0
	}
}

func (f *folder) control(b byte) {
	r := &f.rows[f.y]
	switch b {
	case '\n':
		f.down()
	case '\r':
		r.x = 0
	case '\b':
		r.x = max(0, r.x-1)
	case '\t':
		f.put('\t')
	}
}

func (f *folder) put(c rune) {
	r := &f.rows[f.y]
	if r.x < len(r.cells) {
		r.cells[r.x] = c
		r.x++
		r.redrawn = true
		return
	}
	r.x = min(r.x, max(len(r.cells), foldWidth))
	r.cells = append(r.cells, blanks[:r.x-len(r.cells)]...)
	r.cells = append(r.cells, c)
	r.x++
	if len(r.cells) >= foldColumn {
		f.spill()
	}
}

// down moves to the start of the next row, and emits the oldest row of a full window.
func (f *folder) down() {
	f.y++
	if f.y < len(f.rows) {
		f.rows[f.y].x = 0
		return
	}
	if len(f.rows) < foldRows {
		f.rows = append(f.rows, row{})
		return
	}
	oldest := f.rows[0]
	f.emit(oldest.text() + "\n")
	copy(f.rows, f.rows[1:])
	f.y = len(f.rows) - 1
	f.rows[f.y] = row{cells: oldest.cells[:0]}
}

// spill emits all rows because one has become too long.
func (f *folder) spill() {
	f.emit(f.pending())
	f.rows = append(f.rows[:0], row{})
	f.y = 0
}

// csi applies the cursor movements that draw progress bars.
func (f *folder) csi(cmd ansi.Cmd, params ansi.Params) {
	r := &f.rows[f.y]
	n, _, _ := params.Param(0, 1)
	n = min(max(n, 1), foldColumn-1)
	mode, _, _ := params.Param(0, 0)
	switch cmd.Final() {
	case 'A', 'F':
		f.y = max(0, f.y-n)
		f.rows[f.y].x = r.x
	case 'B', 'E':
		f.y = min(len(f.rows)-1, f.y+n)
		f.rows[f.y].x = r.x
	case 'C':
		r.x = min(r.x+n, foldColumn-1)
	case 'D':
		r.x = max(0, r.x-n)
	case 'G':
		r.x = n - 1
	case 'K':
		r.erase(mode)
	case 'J':
		f.eraseRows(mode)
	}
	if c := cmd.Final(); c == 'E' || c == 'F' {
		f.rows[f.y].x = 0
	}
}

// erase clears a row to its end (mode 0), to its start (1) or completely (2).
func (r *row) erase(mode int) {
	r.redrawn = true
	switch mode {
	case 0:
		r.cells = r.cells[:min(r.x, len(r.cells))]
	case 1:
		copy(r.cells[:min(r.x+1, len(r.cells))], blanks)
	default:
		r.cells = r.cells[:0]
	}
}

func (f *folder) eraseRows(mode int) {
	if mode == 1 {
		return
	}
	if mode == 0 {
		f.rows[f.y].erase(0)
		f.rows = f.rows[:f.y+1]
		return
	}
	x := f.rows[f.y].x
	f.rows = append(f.rows[:0], row{x: x})
	f.y = 0
}

func (r *row) text() string {
	if r.redrawn {
		return strings.TrimRight(string(r.cells), " ")
	}
	return string(r.cells)
}

// column returns the column written to.
func (f *folder) column() int {
	if f.rows == nil {
		return 0
	}
	return f.rows[f.y].x
}

// pending returns the text of the rows that can still change.
func (f *folder) pending() string {
	var b strings.Builder
	for i := range f.rows {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(f.rows[i].text())
	}
	return b.String()
}

// newest returns the last row of the window that is not blank, or "".
func (f *folder) newest() string {
	for _, r := range slices.Backward(f.rows) {
		if s := strings.TrimSpace(r.text()); s != "" {
			return s
		}
	}
	return ""
}

// Plain returns s without colours and other escape sequences, in its final state after all
// redrawing.
func Plain(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' || r == 0x7f || r == utf8.RuneError }) {
		return s
	}
	var b strings.Builder
	f := folder{emit: func(text string) { b.WriteString(text) }}
	f.write(s)
	b.WriteString(f.pending())
	return b.String()
}

// stream is stdout or stderr. It has the folded head and tail in bounded memory.
type stream struct {
	folder folder
	limit  int // runes of the tail that may be shown

	head      []byte
	headRunes int
	frozen    bool   // the head is complete, further text goes to the tail
	atFreeze  string // rows that could still change at the freeze and belong to the head
	tail      bounded.Tail
	after     int   // runes that were written to the tail
	whole     whole // also of what was cleared
}

// start makes s an empty stream.
func (s *stream) start(limit int) {
	*s = stream{limit: limit, folder: folder{emit: s.line}, whole: s.whole}
}

func (s *stream) line(text string) {
	if s.frozen {
		s.after += utf8.RuneCountInString(text)
		_, _ = io.WriteString(&s.tail, text)
		return
	}
	s.head = append(s.head, text...)
	s.headRunes += utf8.RuneCountInString(text)
}

func (s *stream) shown() int { return s.headRunes + utf8.RuneCountInString(s.folder.pending()) }

// freeze completes the head with at most most runes. It reports whether text did not fit,
// which then begins the tail.
func (s *stream) freeze(most int) (cut bool) {
	pending := s.folder.pending()
	// The tail repeats these rows, which does not count as an omission.
	s.tail.Max = utf8.UTFMax * (s.limit + utf8.RuneCountInString(pending) + 1)
	s.frozen = true
	if s.headRunes > most {
		kept := firstLines(string(s.head), most)
		s.line(string(s.head[len(kept):]))
		s.head, s.headRunes = s.head[:len(kept)], utf8.RuneCountInString(kept)
		return true
	}
	s.atFreeze = firstLines(pending, most-s.headRunes)
	return s.atFreeze != pending
}

// firstLines returns the first lines of s with at most most runes; if the first line is
// longer, its beginning.
func firstLines(s string, most int) string {
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return headLines(string([]rune(s)[:most]))
}

// fixed returns how many runes the view has in any case, and rest how many more it would
// have if nothing were omitted.
func (s *stream) fixed() int {
	if !s.frozen {
		return s.shown()
	}
	return s.headRunes + utf8.RuneCountInString(s.atFreeze)
}

func (s *stream) rest() int {
	if !s.frozen {
		return 0
	}
	return max(0, s.after+utf8.RuneCountInString(s.folder.pending())-utf8.RuneCountInString(s.atFreeze))
}

// text returns the head and at most room runes of the rest, and whether text between them
// was omitted, which can be read at offset.
func (s *stream) text(offset int64, room int, unpaged bool) (string, bool) {
	if !s.frozen {
		return string(s.head) + s.folder.pending(), false
	}
	rest := s.tail.String() + s.folder.pending()
	if !s.tail.Dropped() && s.rest() <= room {
		return string(s.head) + rest, false
	}
	runes := []rune(rest)
	last := tailLines(string(runes[max(0, len(runes)-room):]))
	left := s.rest() - utf8.RuneCountInString(last)
	marker := fmt.Sprintf("[… about %d characters omitted; get_execution with offset=%d shows them …]", left, offset)
	if unpaged {
		marker = fmt.Sprintf("[… about %d characters omitted …]", left)
	}
	return join(string(s.head)+s.atFreeze, marker, last), true
}

// Clip shortens s to at most max runes, which must be at least 100. It keeps the head and
// the tail with a marker line between them, and cuts at line breaks if there is one near.
// It reports whether it shortened s.
func Clip(s string, max int) (string, bool) {
	if len(s) <= max || utf8.RuneCountInString(s) <= max {
		return s, false
	}
	const marker = 60 // runes reserved for the marker line
	runes := []rune(s)
	room := max - marker
	head := headLines(string(runes[:room*2/3]))
	tail := tailLines(string(runes[len(runes)-room/3:]))
	left, over := len(runes)-utf8.RuneCountInString(head)-utf8.RuneCountInString(tail), ""
	if strings.Contains(s, lacksMiddle) { // a part of s stands for more
		over = "over "
	}
	return join(head, fmt.Sprintf("[… %s%d characters omitted …]", over, left), tail), true
}

// lacksMiddle stands in a text for what is not there.
const lacksMiddle = "\n[… the middle of this text is only in the saved output …]\n"

// headLines drops an incomplete last line, unless it is most of the text.
func headLines(s string) string {
	if i := strings.LastIndexByte(s, '\n'); i > len(s)/2 {
		return s[:i+1]
	}
	return s
}

// tailLines drops an incomplete first line, unless it is most of the text.
func tailLines(s string) string {
	if i := strings.IndexByte(s, '\n'); i >= 0 && i < len(s)/2 {
		return s[i+1:]
	}
	return s
}

// join puts marker on a separate line between head and tail.
func join(head, marker, tail string) string {
	if head != "" && !strings.HasSuffix(head, "\n") {
		head += "\n"
	}
	return head + marker + "\n" + tail
}
