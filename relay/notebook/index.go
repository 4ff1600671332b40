package notebook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"colabrelay/shared/bounded"
	"colabrelay/shared/lazy"
)

// maxKeys bounds the keys of the notebook and of one cell. A schema knows at most 7.
const maxKeys = 1000

// maxName bounds what a language, a kernel, a type or a tag is called, in bytes. The rest is ignored.
const maxName = 100

// unchosen is the language that VS Code writes while no kernel is chosen.
const unchosen = "plaintext"

// index says where in a file its parts are. A span is empty if the part is not there; of a key
// that occurs twice the last one counts, as for Python.
type index struct {
	top, list    span // the notebook, and its list of cells
	metadata     span
	major, minor span
	gap          span // between the first value and the second key
	cells        []place
	language     string // in language_info
	kernel       struct{ name, language string }
	notes
}

// place says where the parts of a cell are.
type place struct {
	all, id, kind, metadata, source, outputs, count span
	cellType                                        CellType
	// name is the cell's id if that is valid and no cell above has it.
	name string
	// own and colab are the ids in the cell and in its metadata, if they are valid.
	own, colab string
}

// valid is what an id may be.
var valid = lazy.Regexp(`^[A-Za-z0-9_-]{1,64}$`)

// makeIndex finds the parts of a file and checks their form.
func makeIndex(text []byte) (*index, error) {
	if !utf8.Valid(text) {
		return nil, fmt.Errorf("%w: it is not UTF-8 text", ErrNotNotebook)
	}
	x := &index{}
	s := &scanner{text: text}
	if bytes.HasPrefix(text, []byte("\ufeff")) {
		s.at = 3
	}
	s.next()
	x.top.start = s.at
	keys := 0
	err := s.object(func(m *member) error {
		if keys++; keys > maxKeys {
			return s.fail(fmt.Sprintf("the notebook has more than %d keys", maxKeys))
		}
		if keys == 2 {
			x.gap.end = m.name.start
		}
		err := x.topMember(s, m)
		if keys == 1 {
			x.gap = span{s.at, s.at}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	x.top.end = s.at
	if s.next(); s.at < len(text) {
		return nil, s.fail("something follows the notebook")
	}
	x.notes = s.notes
	return x, nil
}

// topMember passes a value of the notebook's object.
func (x *index) topMember(s *scanner, m *member) (err error) {
	switch m.key {
	case "cells":
		x.cells, x.list = nil, span{start: s.at}
		err = s.array(func() error { return x.addCell(s) })
		x.list.end = s.at
	case "metadata":
		x.metadata, x.language, x.kernel = span{start: s.at}, "", struct{ name, language string }{}
		err = passKeys(s, map[string]func() error{
			"kernelspec": func() error {
				return passKeys(s, map[string]func() error{"language": textTo(s, &x.kernel.language), "name": textTo(s, &x.kernel.name)})
			},
			"language_info": func() error { return passKeys(s, map[string]func() error{"name": textTo(s, &x.language)}) },
		})
		if x.metadata.end = s.at; x.language == unchosen {
			x.language = ""
		}
	case "nbformat":
		x.major, err = s.value()
	case "nbformat_minor":
		x.minor, err = s.value()
	default:
		_, err = s.value()
	}
	return err
}

// addCell passes a cell.
func (x *index) addCell(s *scanner) error {
	if len(x.cells) == MaxCells {
		return fmt.Errorf("reading a notebook: %w: over %d cells", bounded.ErrTooLong, MaxCells)
	}
	p := place{all: span{start: s.at}}
	keys := 0
	err := s.object(func(m *member) error {
		if keys++; keys > maxKeys {
			return s.fail(fmt.Sprintf("a cell has more than %d keys", maxKeys))
		}
		return p.pass(s, m)
	})
	p.all.end = s.at
	x.cells = append(x.cells, p)
	return err
}

// pass passes a value of a cell.
func (p *place) pass(s *scanner, m *member) (err error) {
	switch m.key {
	case "id":
		p.id, p.own, err = passID(s)
	case "cell_type":
		var kind string
		err = textTo(s, &kind)()
		p.kind, p.cellType = span{m.value.start, s.at}, CellType(kind)
	case "metadata":
		p.colab = ""
		err = passKeys(s, map[string]func() error{"id": func() (err error) {
			_, p.colab, err = passID(s)
			return err
		}})
		p.metadata = span{m.value.start, s.at}
	case "source":
		err = passSource(s)
		p.source = span{m.value.start, s.at}
	case "outputs":
		p.outputs, err = s.value()
	case "execution_count":
		p.count, err = s.value()
	default:
		_, err = s.value()
	}
	return err
}

// passID passes a value, and returns its place and the id that it is, "" if it is not a valid one.
func passID(s *scanner) (at span, id string, err error) {
	if at, err = s.value(); err == nil {
		id = validID(s.text[at.start:at.end])
	}
	return at, id, err
}

// validID returns the id that JSON stands for, "" if it is not valid.
func validID(value []byte) string {
	if len(value) < 3 || len(value) > 6*64+2 || value[0] != '"' {
		return ""
	}
	if id := decode(value); valid().MatchString(id) {
		return id
	}
	return ""
}

// passKeys passes a value. If it is an object, some of its keys are passed by their functions.
func passKeys(s *scanner, keys map[string]func() error) error {
	if s.next() != '{' {
		_, err := s.value()
		return err
	}
	return s.object(func(m *member) error {
		if pass := keys[m.key]; pass != nil {
			return pass()
		}
		_, err := s.value()
		return err
	})
}

// textTo returns a function that passes a value and stores its text, up to maxName bytes, if
// it is one and not empty.
func textTo(s *scanner, to *string) func() error {
	return func() error {
		at, err := s.value()
		if err == nil && s.text[at.start] == '"' && at.len() > 2 {
			if *to = decode(s.text[at.start:at.end]); len(*to) > maxName {
				*to = strings.ToValidUTF8((*to)[:maxName], "")
			}
		}
		return err
	}
}

// passSource passes a source: a text, a list of texts, or null.
func passSource(s *scanner) error {
	start, raw, count := s.at, 0, 0
	pass := func() error {
		if s.next() != '"' {
			return s.fail("a cell's source is not text")
		}
		at, err := s.value()
		raw += at.len() - 2
		count++
		return err
	}
	var err error
	switch s.next() {
	case '[':
		err = s.array(pass)
	case 'n':
		_, err = s.value()
	default:
		err = pass()
	}
	if err != nil || max(raw, count) <= MaxSourceBytes {
		return err
	}
	// A byte needs at most the six of an escape sequence.
	if raw > 6*MaxSourceBytes || count > MaxSourceBytes || len(joined(s.text[start:s.at])) > MaxSourceBytes {
		return fmt.Errorf("reading a notebook: a cell's source is %w", bounded.TooLong(MaxSourceBytes))
	}
	return nil
}

// lines returns the texts of a source that passSource has passed.
func lines(source []byte) []string { return linesBy(source, decode) }

func linesBy(source []byte, decode func([]byte) string) []string {
	var found []string
	s := scanner{text: source}
	pass := func() error {
		at, err := s.value()
		if source[at.start] == '"' {
			found = append(found, decode(source[at.start:at.end]))
		}
		return err
	}
	if len(source) > 0 && source[0] == '[' {
		_ = s.array(pass)
	} else if len(source) > 0 {
		_ = pass()
	}
	return found
}

// joined returns the text of a source.
func joined(source []byte) string { return strings.Join(lines(source), "") }

// nameCells sets the name of each cell, by which a handle finds it. The ids of cells go before
// those in their metadata.
func (x *index) nameCells(minor int) {
	taken := map[string]bool{}
	name := func(id func(p *place) string) {
		for i := range x.cells {
			p := &x.cells[i]
			if id := id(p); p.name == "" && id != "" && !taken[id] {
				p.name, taken[id] = id, true
			}
		}
	}
	if minor >= 5 {
		name(func(p *place) string { return p.own })
	}
	name(func(p *place) string { return p.colab })
}

// number returns the whole JSON number of a part, such as 4 or 4.0, or -1.
func number(text []byte, at span) int {
	var n float64
	if json.Unmarshal(text[at.start:at.end], &n) != nil || n != math.Trunc(n) || math.Abs(n) > math.MaxInt32 {
		return -1
	}
	return int(n)
}

// isPython reports whether the names of language and kernel are those of Python. A notebook that
// names no language is for Python unless its kernel is one of R or Julia.
func (x *index) isPython() bool {
	language := strings.ToLower(x.language + x.kernel.language)
	if language == "" {
		return x.kernel.name != "ir" && !strings.HasPrefix(x.kernel.name, "julia")
	}
	return strings.Contains(language, "python")
}

// maxNesting bounds how deep values are nested. Python's own reader fails at about this depth.
const maxNesting = 900

// span is a part of a file: the bytes from start to before end.
type span struct{ start, end int }

func (s span) len() int { return s.end - s.start }

// member is a key of an object with its value.
type member struct {
	key   string
	name  span // of the key, with its quotes
	value span
}

// scanner finds the places of values in JSON and checks its form. Like Python it also accepts
// NaN, Infinity and -Infinity.
type scanner struct {
	text  []byte
	at    int
	depth int
	notes
}

// notes are what a scanner notices on its way.
type notes struct {
	raw     bool // a character is not ASCII
	escaped bool // an escape sequence stands for a character that is not ASCII
}

// conflict is the start of a line that git writes between two versions.
var conflict = lazy.Regexp(`^(<{7}|={7}|>{7})(\s|$)`)

// fail returns the error of a text that is not JSON.
func (s *scanner) fail(what string) error {
	if s.at >= len(s.text) {
		return fmt.Errorf("%w: it ends too early", ErrNotNotebook)
	}
	line := bytes.Count(s.text[:s.at], []byte("\n")) + 1
	if start := s.text[bytes.LastIndexByte(s.text[:s.at], '\n')+1:]; conflict().Match(start[:min(len(start), 8)]) {
		return fmt.Errorf("%w: line %d is a conflict marker of git: resolve the conflict first", ErrNotNotebook, line)
	}
	return fmt.Errorf("%w: %s at byte %d, in line %d", ErrNotNotebook, what, s.at, line)
}

// next skips white space and returns the byte after it, 0 at the end.
func (s *scanner) next() byte {
	for ; s.at < len(s.text); s.at++ {
		switch b := s.text[s.at]; b {
		case ' ', '\n', '\r', '\t':
		default:
			return b
		}
	}
	return 0
}

// value passes one value and returns its place.
func (s *scanner) value() (span, error) {
	first := s.next()
	start, err := s.at, error(nil)
	switch {
	case first == '"':
		err = s.string()
	case first == '{':
		err = s.object(nil)
	case first == '[':
		err = s.array(nil)
	case first == '-' || first >= '0' && first <= '9':
		err = s.number()
	default:
		err = s.word("true", "false", "null", "NaN", "Infinity")
	}
	return span{start, s.at}, err
}

// object passes an object. visit gets each key and passes its value; nil passes all of them.
func (s *scanner) object(visit func(m *member) error) error {
	return s.list('{', '}', func() error {
		if s.next() != '"' {
			return s.fail("a key is missing")
		}
		m := member{name: span{start: s.at}}
		if err := s.string(); err != nil {
			return err
		}
		m.name.end = s.at
		if s.next() != ':' {
			return s.fail("a colon is missing")
		}
		s.at++
		s.next()
		if visit == nil {
			_, err := s.value()
			return err
		}
		m.key, m.value.start = decode(s.text[m.name.start:m.name.end]), s.at
		return visit(&m)
	})
}

// array passes an array. visit passes each element, which begins at s.at; nil passes all.
func (s *scanner) array(visit func() error) error {
	if visit == nil {
		visit = func() error { _, err := s.value(); return err }
	}
	return s.list('[', ']', func() error {
		s.next()
		return visit()
	})
}

// Items visits the items of a JSON list without a copy of them. It visits nothing in JSON of another
// kind, and stops where the text is no JSON. As Python writes it, it may have NaN and Infinity.
func Items(list []byte, visit func(item []byte)) {
	s := scanner{text: list}
	_ = s.array(func() error {
		at, err := s.value()
		if err == nil {
			visit(list[at.start:at.end])
		}
		return err
	})
}

// Members visits the members of a JSON object, as Items does those of a list.
func Members(object []byte, visit func(key string, value []byte)) {
	s := scanner{text: object}
	_ = s.object(func(m *member) error {
		at, err := s.value()
		if err == nil {
			visit(m.key, object[at.start:at.end])
		}
		return err
	})
}

// list passes elements between two delimiters.
func (s *scanner) list(opening, closing byte, element func() error) error {
	if s.next() != opening {
		return s.fail(fmt.Sprintf("another value stands where %q is expected", opening))
	}
	if s.depth++; s.depth > maxNesting {
		return s.fail(fmt.Sprintf("values are nested more than %d deep", maxNesting))
	}
	s.at++
	for count := 0; ; count++ {
		switch b := s.next(); {
		case b == closing && count == 0:
			return s.leave()
		case count == 0:
		case b == closing:
			return s.leave()
		case b != ',':
			return s.fail("a comma is missing")
		default:
			s.at++
		}
		if err := element(); err != nil {
			return err
		}
	}
}

func (s *scanner) leave() error {
	s.depth--
	s.at++
	return nil
}

// plainBytes are the bytes of a string that need no attention.
var plainBytes = func() (plain [256]bool) {
	for b := 0x20; b < utf8.RuneSelf; b++ {
		plain[b] = b != '"' && b != '\\'
	}
	return plain
}()

// string passes a string.
func (s *scanner) string() error {
	text := s.text
	for at := s.at + 1; at < len(text); at++ {
		b := text[at]
		switch {
		case plainBytes[b]:
		case b == '"':
			s.at = at + 1
			return nil
		case b >= utf8.RuneSelf:
			s.raw = true
		case b == '\\':
			n, err := s.escape(at)
			if err != nil {
				return err
			}
			at += n
		default:
			s.at = at
			return s.fail("a control character stands in a text")
		}
	}
	s.at = len(text)
	return s.fail("")
}

// escape returns the number of bytes of an escape sequence after its backslash.
func (s *scanner) escape(at int) (int, error) {
	rest := s.text[at+1:]
	switch {
	case len(rest) == 0:
		s.at = len(s.text)
	case strings.IndexByte(escapes, rest[0]) >= 0:
		return 1, nil
	case rest[0] == 'u' && len(rest) < 5:
		s.at = len(s.text)
	case rest[0] == 'u' && isHex(rest[1:5]):
		s.escaped = s.escaped || string(rest[1:3]) != "00" || rest[3] > '7'
		return 5, nil
	default:
		s.at = at
	}
	return 0, s.fail("a backslash begins no escape sequence of JSON")
}

func isHex(digits []byte) bool {
	for _, b := range digits {
		if strings.IndexByte("0123456789abcdefABCDEF", b) < 0 {
			return false
		}
	}
	return true
}

// number passes a number.
func (s *scanner) number() error {
	start := s.at
	if bytes.HasPrefix(s.text[start:], []byte("-I")) {
		s.at++
		return s.word("Infinity")
	}
	for s.at < len(s.text) && strings.IndexByte("+-.0123456789Ee", s.text[s.at]) >= 0 {
		s.at++
	}
	if !json.Valid(s.text[start:s.at]) {
		s.at = start
		return s.fail("a number has no valid form")
	}
	return nil
}

// word passes one of these words.
func (s *scanner) word(words ...string) error {
	for _, word := range words {
		if bytes.HasPrefix(s.text[s.at:], []byte(word)) {
			s.at += len(word)
			return nil
		}
	}
	return s.fail("a value is missing or has no valid form")
}
