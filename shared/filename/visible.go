package filename

import "unicode"

// Visible reports whether a reader can see r, or needs it to read its neighbours. It is
// false for control characters, including line breaks and tabs; for characters that turn
// the direction of writing, which show "exe.gpj" as "jpg.exe"; and for those that show
// nothing, which make one name look like another and carry hidden text. Every Joiner is
// visible.
func Visible(r rune) bool {
	return !unicode.IsControl(r) && !unicode.Is(hidden, r)
}

// Joiner reports whether r shows nothing itself but changes its neighbours: the joiners of
// scripts and emoji, and the selectors of an emoji's form. A row of them carries hidden text.
func Joiner(r rune) bool {
	return r == '\u200c' || r == '\u200d' || r == '\ufe0e' || r == '\ufe0f'
}

// hidden are Unicode's Default_Ignorable_Code_Point (DerivedCoreProperties.txt) without the
// joiners, and the characters of interlinear annotations and of line breaks that only some
// programs know.
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
		{Lo: 0x1d173, Hi: 0x1d17a, Stride: 1}, // musical format
		{Lo: 0xe0000, Hi: 0xe0fff, Stride: 1}, // tags, variation selectors
	},
}
