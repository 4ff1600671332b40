package filename

import "unicode"

// Visible reports whether a reader can see r, or needs it to read its neighbours. It is
// false for control characters, including line breaks and tabs; for characters that turn
// the direction of writing, which show "exe.gpj" as "jpg.exe"; and for those of no width,
// which make one name look like another. The joiners that scripts and emoji need are
// visible.
func Visible(r rune) bool {
	switch {
	case unicode.IsControl(r): // C0, DEL, C1
		return false
	case r == '\u061c', r >= '\u202a' && r <= '\u202e', r >= '\u2066' && r <= '\u2069', r == '\u200e', r == '\u200f':
		return false // direction
	case r == '\u180e', r == '\u200b', r >= '\u2060' && r <= '\u2065', r >= '\u206a' && r <= '\u206f', r == '\ufeff', r >= '\ufff9' && r <= '\ufffb':
		return false // no width
	case r == '\u2028', r == '\u2029':
		return false // line breaks to some programs only
	}
	return r < 0xe0000 || r > 0xe0fff // tags and the variation selectors that carry hidden text
}
