package render

import (
	"fmt"
	"unicode/utf8"
)

// stream is stdout or stderr: its folded head and tail in bounded memory, and
// its raw text spooled to disk for the case that something is left out.
type stream struct {
	folder *folder
	spool  *spool

	head      []byte
	headRunes int
	frozen    bool   // the head is complete, the rest goes to the tail
	skipped   bool   // what came after the head was passed over
	atFreeze  string // rows that were still open then
	tail      tail
}

func newStream(sp *spool) *stream {
	s := &stream{spool: sp, tail: tail{max: tailRunes}}
	s.folder = newFolder(s.line)
	return s
}

func (s *stream) line(text string) {
	if s.frozen {
		s.tail.write(text)
		return
	}
	s.head = append(s.head, text...)
	s.headRunes += utf8.RuneCountInString(text)
}

// write takes text; keep says whether it is to be saved.
func (s *stream) write(text string, keep bool) {
	if keep {
		s.spool.write(text)
	}
	s.folder.write(text)
}

// skip forgets what is past the head: text comes that does not follow it.
func (s *stream) skip() {
	s.skipped, s.tail, s.folder = true, tail{max: tailRunes}, newFolder(s.line)
}

// shown is how many runes the head would show now.
func (s *stream) shown() int { return s.headRunes + utf8.RuneCountInString(s.folder.pending()) }

func (s *stream) freeze() {
	s.atFreeze = s.folder.pending()
	// These rows may come again in the tail: alone they are nothing left out.
	s.tail.max = tailRunes + utf8.RuneCountInString(s.atFreeze)
	s.frozen = true
}

// clear forgets what was shown, as clear_output asks; the spool keeps all.
func (s *stream) clear() { *s = *newStream(s.spool) }

// text is what a reader gets, and whether something was left out of it. where
// tells how to read that.
func (s *stream) text(where string) (string, bool) {
	if !s.frozen {
		return string(s.head) + s.folder.pending(), false
	}
	rest := s.tail
	rest.buf = append([]byte(nil), rest.buf...)
	rest.write(s.folder.pending())
	rest.shrink()
	if rest.dropped == 0 && !s.skipped {
		return string(s.head) + string(rest.buf), false
	}
	rest.max = tailRunes
	rest.shrink()
	head := string(s.head) + s.atFreeze
	last := tailLines(string(rest.buf))
	marker := fmt.Sprintf("[… about %d characters left out%s …]", rest.dropped, where)
	if s.skipped {
		marker = fmt.Sprintf("[… text left out that was read before%s …]", where)
	}
	return join(head, marker, last), true
}
