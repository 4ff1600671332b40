// Package filename makes file names that are safe on every system: no separators, no
// Windows device names, no invisible characters, at most 255 bytes.
//
// It only works on strings and cannot know which names are taken, but for Existing. Start reading
// at Clean, Unique and CheckPath, and at Typed for paths as people and models write them.
package filename

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"strings"
	"unicode/utf8"
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
