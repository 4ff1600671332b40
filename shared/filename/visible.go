package filename

import (
	"strings"
	"unicode"
)

// Visible reports whether every reader sees r, or needs it to read its neighbours. It is
// false for control and format characters, including line breaks and tabs; for characters that
// turn the direction of writing, which show "exe.gpj" as "jpg.exe"; for those that show nothing,
// which make one name look like another and carry hidden text; and for Unknown ones. Every
// Joiner is visible; Row says which of them a text needs.
func Visible(r rune) bool {
	switch {
	case r < 0x7f:
		return r >= ' '
	case !unicode.IsGraphic(r):
		return Joiner(r) || unicode.Is(concatenation, r) || unicode.Is(unicode.Cn, r) && pictograph(r)
	}
	return Joiner(r) || !unicode.Is(hidden, r)
}

// Unknown reports whether r has no meaning that all readers share: it is for private use, or not
// assigned. A font may show something or nothing, so a row of them carries hidden text.
func Unknown(r rune) bool {
	return unicode.In(r, unicode.Co, unicode.Cn) && !pictograph(r) && !unicode.Is(hidden, r)
}

// Joiner reports whether r shows nothing itself but changes its neighbours: the joiners of
// scripts and emoji, and the selectors of an emoji's form.
func Joiner(r rune) bool { return r == zwnj || r == zwj || r == asText || r == asEmoji }

const (
	zwnj    = '\u200c'
	zwj     = '\u200d'
	asText  = '\ufe0e'
	asEmoji = '\ufe0f'
	keycap  = '\u20e3'
)

// Row follows the characters of a text and says which ones stay in it.
type Row struct {
	base rune // the last one that stayed and is more than a mark on another one
	last rune // the last one that stayed
}

// Keeps reports whether r, which the character next follows, stays: it is Visible and, if it is
// a Joiner, a script or an emoji needs it. A selector of form belongs behind a pictograph or into
// a keycap, U+200D between pictographs, and one joiner behind a letter of a script whose letters
// join. Elsewhere joiners would carry hidden text.
func (w *Row) Keeps(r, next rune) bool {
	if r >= ' ' && r < 0x7f { // most characters
		w.base, w.last = r, r
		return true
	}
	if !Visible(r) || Joiner(r) && !w.needs(r, next) {
		return false
	}
	if w.last = r; !unicode.Is(unicode.Inherited, r) {
		w.base = r
	}
	return true
}

func (w *Row) needs(r, next rune) bool {
	switch {
	case r == zwj && pictograph(w.base):
		return pictograph(next) && w.last != zwj
	case Joiner(w.last):
		return false
	case r == zwj, r == zwnj:
		return unicode.In(w.base, joining...)
	}
	return pictograph(w.base) || next == keycap && strings.ContainsRune("0123456789#*", w.base)
}

// pictograph reports whether r is in a block of pictographs, including those that Unicode keeps
// free for coming emoji.
func pictograph(r rune) bool { return unicode.Is(pictographs, r) }

var pictographs = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x00a9, Hi: 0x00ae, Stride: 5},
		{Lo: 0x203c, Hi: 0x203c, Stride: 1}, {Lo: 0x2049, Hi: 0x2049, Stride: 1},
		{Lo: 0x2122, Hi: 0x2122, Stride: 1}, {Lo: 0x2139, Hi: 0x2139, Stride: 1},
		{Lo: 0x2190, Hi: 0x21ff, Stride: 1}, // arrows
		{Lo: 0x2300, Hi: 0x23ff, Stride: 1}, // technical
		{Lo: 0x2460, Hi: 0x24ff, Stride: 1}, // in circles
		{Lo: 0x25a0, Hi: 0x27bf, Stride: 1}, // shapes, symbols, dingbats
		{Lo: 0x2900, Hi: 0x297f, Stride: 1}, // arrows
		{Lo: 0x2b00, Hi: 0x2bff, Stride: 1}, // arrows, stars
		{Lo: 0x3030, Hi: 0x3030, Stride: 1}, {Lo: 0x303d, Hi: 0x303d, Stride: 1},
		{Lo: 0x3297, Hi: 0x3299, Stride: 2},
	},
	R32:         []unicode.Range32{{Lo: 0x1f000, Hi: 0x1faff, Stride: 1}, {Lo: 0x1fc00, Hi: 0x1fffd, Stride: 1}},
	LatinOffset: 1,
}

// joining are the scripts in which a joiner between letters changes their form.
var joining = []*unicode.RangeTable{
	unicode.Arabic, unicode.Syriac, unicode.Mandaic, unicode.Mongolian, unicode.Nko, unicode.Phags_Pa, unicode.Manichaean,
	unicode.Psalter_Pahlavi, unicode.Hanifi_Rohingya, unicode.Sogdian, unicode.Adlam, unicode.Chorasmian,
	unicode.Devanagari, unicode.Bengali, unicode.Gurmukhi, unicode.Gujarati, unicode.Oriya, unicode.Tamil, unicode.Telugu,
	unicode.Kannada, unicode.Malayalam, unicode.Sinhala, unicode.Tibetan, unicode.Myanmar, unicode.Khmer, unicode.Balinese,
	unicode.Javanese, unicode.Grantha, unicode.Newa, unicode.Tirhuta, unicode.Modi, unicode.Sharada, unicode.Brahmi, unicode.Kaithi,
}

// concatenation are the format characters that show something: signs around Arabic and Kaithi
// numbers (Prepended_Concatenation_Mark).
var concatenation = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x0600, Hi: 0x0605, Stride: 1}, {Lo: 0x06dd, Hi: 0x06dd, Stride: 1}, {Lo: 0x070f, Hi: 0x070f, Stride: 1},
		{Lo: 0x0890, Hi: 0x0891, Stride: 1}, {Lo: 0x08e2, Hi: 0x08e2, Stride: 1},
	},
	R32: []unicode.Range32{{Lo: 0x110bd, Hi: 0x110cd, Stride: 16}},
}

// hidden are Unicode's Default_Ignorable_Code_Point (DerivedCoreProperties.txt) without the
// joiners, the characters of interlinear annotations and of line breaks that only some
// programs know, and a musical sign without a look.
var hidden = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x00ad, Hi: 0x00ad, Stride: 1}, // soft hyphen
		{Lo: 0x034f, Hi: 0x034f, Stride: 1}, // grapheme joiner, which joins nothing
		{Lo: 0x061c, Hi: 0x061c, Stride: 1}, // direction
		{Lo: 0x115f, Hi: 0x1160, Stride: 1}, // Hangul fillers
		{Lo: 0x17b4, Hi: 0x17b5, Stride: 1}, // Khmer inherent vowels
		{Lo: 0x180b, Hi: 0x180f, Stride: 1}, // Mongolian selectors
		{Lo: 0x200b, Hi: 0x200b, Stride: 1}, // zero-width space
		{Lo: 0x200e, Hi: 0x200f, Stride: 1}, // direction
		{Lo: 0x2028, Hi: 0x202e, Stride: 1}, // line breaks, direction
		{Lo: 0x2060, Hi: 0x206f, Stride: 1}, // no width, direction
		{Lo: 0x3164, Hi: 0x3164, Stride: 1}, // Hangul filler
		{Lo: 0xfe00, Hi: 0xfe0d, Stride: 1}, // variation selectors but those of emoji
		{Lo: 0xfeff, Hi: 0xfeff, Stride: 1}, // byte order mark
		{Lo: 0xffa0, Hi: 0xffa0, Stride: 1}, // Hangul filler
		{Lo: 0xfff0, Hi: 0xfffb, Stride: 1}, // annotations
	},
	R32: []unicode.Range32{
		{Lo: 0x1bca0, Hi: 0x1bca3, Stride: 1}, // shorthand format
		{Lo: 0x1d159, Hi: 0x1d159, Stride: 1}, // note without a head
		{Lo: 0x1d173, Hi: 0x1d17a, Stride: 1}, // musical format
		{Lo: 0xe0000, Hi: 0xe0fff, Stride: 1}, // tags, variation selectors
	},
}
