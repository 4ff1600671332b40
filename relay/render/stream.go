package render

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// stream is stdout or stderr. It has the folded head and tail in bounded memory, and spools
// the raw text to disk in case some of it is omitted.
type stream struct {
	folder folder
	spool  spool

	head      []byte
	headRunes int
	frozen    bool   // the head is complete, further text goes to the tail
	skipped   bool   // text after the head was skipped
	atFreeze  string // rows that could still change at the freeze
	tail      tail
}

// start makes s an empty stream.
func (s *stream) start(sp spool) {
	*s = stream{spool: sp, tail: tail{max: tailRunes}, folder: folder{emit: s.line}}
}

func (s *stream) line(text string) {
	if s.frozen {
		s.tail.write(text)
		return
	}
	s.head = append(s.head, text...)
	s.headRunes += utf8.RuneCountInString(text)
}

// write adds text, and spools it if keep is set.
func (s *stream) write(text string, keep bool) {
	if keep {
		s.spool.write(text)
	}
	s.folder.write(text)
}

// skip drops the text after the head. The text written next does not follow the head.
func (s *stream) skip() {
	s.skipped, s.tail, s.folder = true, tail{max: tailRunes}, folder{emit: s.line}
}

func (s *stream) shown() int { return s.headRunes + utf8.RuneCountInString(s.folder.pending()) }

func (s *stream) freeze() {
	s.atFreeze = s.folder.pending()
	// The tail may repeat these rows, which does not count as an omission.
	s.tail.max = tailRunes + utf8.RuneCountInString(s.atFreeze)
	s.frozen = true
}

// clear drops the shown text, as clear_output requests. The spool keeps everything.
func (s *stream) clear() { s.start(s.spool) }

// text returns the shown text and whether some was omitted, which can be read at offset.
func (s *stream) text(offset int64) (string, bool) {
	if !s.frozen {
		return string(s.head) + s.folder.pending(), false
	}
	rest := s.tail
	rest.buf = bytes.Clone(rest.buf)
	rest.write(s.folder.pending())
	rest.shrink()
	if rest.dropped == 0 && !s.skipped {
		return string(s.head) + string(rest.buf), false
	}
	rest.max = tailRunes
	rest.shrink()
	head := string(s.head) + s.atFreeze
	where := fmt.Sprintf("; get_execution with offset=%d continues there", offset)
	last := tailLines(string(rest.buf))
	marker := fmt.Sprintf("[… about %d characters omitted%s …]", rest.dropped, where)
	if s.skipped {
		marker = fmt.Sprintf("[… text omitted that was read before%s …]", where)
	}
	return join(head, marker, last), true
}
