// Package filename makes file names that are safe on every system: no separators, no
// Windows device names, no invisible characters, at most 255 bytes.
//
// It only works on strings and cannot know which names are taken, but for Existing. Start reading
// at Clean, Unique and CheckPath, and at Typed for paths as people and models write them.
package filename

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"colabrelay/shared/lazy"
)

// Bounds of names and paths, in bytes. A name within them also fits where a file system
// counts UTF-16 units, because no character has more units than UTF-8 bytes.
const (
	MaxBytes     = 255
	maxPath      = 4096
	maxExtension = 32 // what follows the last dot is no extension if it is longer
	maxUnique    = 80 // of Unique, without its hash
	maxID        = 100
)

// Clean returns the name closest to name that a local file may have. It is never empty,
// "." or "..", never contains a slash or a character that is not Visible or a joiner that
// nothing needs, and has at most MaxBytes bytes. With windows set it is valid UTF-8 and not a name that Windows
// refuses, changes or takes for a device. Two names can become the same one.
func Clean(name string, windows bool) string {
	if windows {
		name = strings.ToValidUTF8(name, "_")
	}
	name = fit(replaceForbidden(name, windows), "")
	if windows {
		if bare := strings.TrimRight(name, ". "); bare != name {
			name = bare + "_"
		}
		if isDevice(name) {
			name = fit("_"+name, "")
		}
	}
	if name == "" || name == "." || name == ".." {
		return strings.Repeat("_", max(1, len(name)))
	}
	return name
}

// replaceForbidden puts an underscore in place of each forbidden character. Unlike
// strings.Map it keeps bytes that are not UTF-8.
func replaceForbidden(name string, windows bool) string {
	var b strings.Builder
	var row Row
	for len(name) > 0 {
		r, n := utf8.DecodeRuneInString(name)
		next, _ := utf8.DecodeRuneInString(name[n:])
		if r == '/' || !row.Keeps(r, next) || windows && strings.ContainsRune(`<>:"\|?*`, r) {
			b.WriteByte('_')
			row.Keeps('_', next)
		} else {
			b.WriteString(name[:n])
		}
		name = name[n:]
	}
	return b.String()
}

// isDevice reports whether Windows opens a device under this name. An extension, and
// spaces before it, make no difference.
func isDevice(name string) bool {
	stem, _, _ := strings.Cut(name, ".")
	stem = strings.ToUpper(strings.TrimRight(stem, " "))
	switch stem {
	case "CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$":
		return true
	}
	if digit, ok := strings.CutPrefix(stem, "COM"); ok {
		return isPort(digit)
	}
	digit, ok := strings.CutPrefix(stem, "LPT")
	return ok && isPort(digit)
}

// isPort accepts the superscript digits too, because Windows does.
func isPort(digit string) bool {
	return utf8.RuneCountInString(digit) == 1 && strings.Contains("0123456789¹²³", digit)
}

// Numbered returns the i-th name to try for a file: name itself, then "name (1).ext".
// name may be a path with slashes.
func Numbered(name string, i int) string {
	if i == 0 {
		return name
	}
	dir, base := path.Split(name)
	return dir + fit(base, fmt.Sprintf(" (%d)", i))
}

// fit inserts addition before the extension of name and shortens the rest of the name, at
// a character, to at most MaxBytes in all.
func fit(name, addition string) string {
	ext := path.Ext(name)
	if len(ext) > maxExtension || ext == name {
		ext = ""
	}
	stem := strings.TrimSuffix(name, ext)
	for len(stem)+len(addition)+len(ext) > MaxBytes {
		_, n := utf8.DecodeLastRuneInString(stem)
		stem = strings.TrimRightFunc(stem[:len(stem)-n], Joiner)
	}
	return stem + addition + ext
}

// Unique returns a file name without an extension for name, which may be any string. Two
// strings never share a result, also where file names ignore case: a lower-case ASCII
// name stays, any other keeps its letters and digits and gets a hash. Files on disk have
// these names, so they must not change.
func Unique(name string) string {
	safe := strings.ToLower(replaceSpecial(name, ""))
	if safe == name && safe != "" && len(safe) <= maxUnique && !isUniqueDevice(safe) {
		return safe
	}
	sum := sha256.Sum256([]byte(name))
	return safe[:min(len(safe), maxUnique)] + "." + hex.EncodeToString(sum[:6])
}

// isUniqueDevice excludes com0 and lpt0, which have names without a hash on disk. The
// hash does not help on Windows 10, which ignores what follows a dot.
func isUniqueDevice(name string) bool { return isDevice(name) && name != "com0" && name != "lpt0" }

// ID returns id, which another machine chose, as the name of one file or folder. Two ids
// can become the same name.
func ID(id string) string {
	id = replaceSpecial(id, ".")
	return Clean(strings.TrimLeft(id[:min(len(id), maxID)], "."), true)
}

// replaceSpecial puts an underscore in place of each character that is neither an ASCII
// letter or digit, a dash, an underscore, nor among also.
func replaceSpecial(s, also string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', strings.ContainsRune(also, r):
			return r
		}
		return '_'
	}, s)
}

// CheckPath refuses a relative path, with slashes, that leaves its folder or that no file
// can have. Names that only Windows refuses are accepted elsewhere; a drive letter is
// refused everywhere, because it is surely a mistake.
func CheckPath(name string, windows bool) error {
	switch {
	case strings.HasPrefix(name, "/"), windows && strings.HasPrefix(name, `\`):
		return fmt.Errorf("%q is an absolute path", name)
	case len(name) >= 2 && name[1] == ':' && (name[0]|0x20) >= 'a' && (name[0]|0x20) <= 'z':
		return fmt.Errorf("%q names a drive", name)
	case strings.ContainsRune(name, 0):
		return fmt.Errorf("%q contains a NUL character", name)
	case len(name) > maxPath:
		return fmt.Errorf("a path of %d bytes is too long: at most %d are allowed", len(name), maxPath)
	}
	if windows {
		name = strings.ReplaceAll(name, `\`, "/")
	}
	if strings.Contains("/"+name+"/", "/../") {
		return fmt.Errorf("%q contains \"..\"", name)
	}
	for _, segment := range strings.Split(path.Clean(name), "/") {
		switch {
		case segment == ".":
			return fmt.Errorf("%q names no file", name)
		case len(segment) > MaxBytes:
			return fmt.Errorf("%q contains a name longer than %d bytes", name, MaxBytes)
		case segment != Clean(segment, windows):
			return fmt.Errorf("%q contains characters that a file name cannot have", name)
		}
	}
	return nil
}

// Obeyed reports whether programs on a person's computer may obey a file or folder because of its
// name: it begins with a dot, as .git, .envrc and .vscode do, or is an instruction or settings
// file of agents. Case, joiners, and dots and spaces at the end do not count, because some file
// systems ignore them. A short name such as GIT~1 counts, because Windows may take it for .git.
func Obeyed(name string) bool {
	name = bare(name)
	return strings.HasPrefix(name, ".") || shortForm().MatchString(name) ||
		slices.ContainsFunc(agentFiles, func(file string) bool { return strings.EqualFold(file, name) })
}

// ObeyedFile reports whether a file, not a folder, is Obeyed or is named HEAD: Git takes a folder with
// such a file, objects and refs for a repository, and runs the commands that its config names.
func ObeyedFile(name string) bool {
	return Obeyed(name) || strings.EqualFold(bare(name), "HEAD")
}

// bare returns a name without what some file systems ignore, but for the case of letters.
func bare(name string) string {
	return strings.TrimRight(strings.Map(func(r rune) rune {
		if Joiner(r) {
			return -1
		}
		return r
	}, name), ". ")
}

// agentFiles are what programs that run agents read in a folder that they are started in, and
// that does not begin with a dot.
var agentFiles = []string{
	"AGENT.md", "AGENTS.md", "AGENTS.override.md", "CLAUDE.md", "CLAUDE.local.md", "CODEX.md", "CRUSH.md", "GEMINI.md", "QWEN.md", "WARP.md",
	"crush.json", "opencode.json", "opencode.jsonc",
}

// shortForm matches the names that Windows gives to files besides their own.
var shortForm = lazy.Regexp(`^[^.~]{1,6}~[0-9]{1,6}(\.[^.]{1,3})?$`)

// ObeyedPart returns the first Obeyed part of a relative path with slashes, or "".
func ObeyedPart(path string) string {
	for part := range strings.SplitSeq(path, "/") {
		if part != "." && Obeyed(part) {
			return part
		}
	}
	return ""
}

// ErrNotation means that a path has notation that only a shell or a browser replaces, such as
// $HOME. A program that took it for a name would create a folder of that name.
var ErrNotation = errors.New("write the path in full")

// notation is ~NAME and file: at the beginning, and $NAME, ${NAME}, $(…) and %NAME% where a part of
// the path begins. ${NAME} is one anywhere.
var notation = lazy.Regexp(`^(?:(?i:file:)|~[^/\\]+)|(?:^|[/\\])(?:\$[A-Za-z_{(][^/\\]*|%[A-Za-z_][A-Za-z0-9_()]{2,}%)|\$\{[A-Za-z_]\w*\}`)

// InHome returns what follows the ~ of a path that is the home folder or begins in it.
func InHome(path string) (rest string, ok bool) {
	rest, ok = strings.CutPrefix(path, "~")
	return rest, ok && (rest == "" || os.IsPathSeparator(rest[0]))
}

// CheckTyped returns ErrNotation if a path has notation that nobody replaces here. ~ and ~/… have
// none: they are the home folder. A path that begins with ./ is taken as it is.
func CheckTyped(path string) error {
	if rest, ok := InHome(path); ok {
		path = rest
	}
	if !strings.ContainsAny(path, "~$%:") {
		return nil // as most paths
	}
	part := strings.TrimLeft(notation().FindString(path), `/\`)
	switch {
	case part == "" || len(path) > 1 && path[0] == '.' && os.IsPathSeparator(path[1]):
		return nil
	case strings.EqualFold(part, "file:"):
		return fmt.Errorf("%q is a URL, not a path: %w", path, ErrNotation)
	}
	return fmt.Errorf("%q has %q, which no shell replaces here: %w", path, part, ErrNotation)
}

// Explain adds to err, which is about a typed path, what notation the path has.
func Explain(err error, path string) error {
	if why := CheckTyped(path); err != nil && why != nil {
		return fmt.Errorf("%w; %w", err, why)
	}
	return err
}

// Typed returns the path on this computer that somebody wrote where no shell reads it.
func Typed(path string) (string, error) {
	if err := CheckTyped(path); err != nil {
		return path, err
	}
	rest, ok := InHome(path)
	if !ok {
		return path, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return path, fmt.Errorf("%q begins with ~, but the home folder is not known: %w", path, ErrNotation)
	}
	return home + rest, nil
}

// Existing is Typed for something that is read: a name of this very spelling is taken first.
func Existing(path string) (string, error) {
	if _, err := os.Lstat(path); err == nil {
		return path, nil
	}
	return Typed(path)
}

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
