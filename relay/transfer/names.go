package transfer

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"unicode/utf8"

	"colabrelay/relay/plain"
	"colabrelay/shared/contract"
)

// maxName is the longest name of a file in bytes, on any system.
const maxName = 255

// onWindows, as most others need both answers in tests.
const onWindows = runtime.GOOS == "windows"

// LocalName is the last part of a remote path, which is escaped as the contract has
// it, as a name that a local file may have: never empty, a dot or two, never with a
// separator or a character that is not visible, at most 255 bytes; on windows UTF-8, and
// none that Windows refuses, hides or takes for a device. Two remote names can become the
// same one.
func LocalName(remote string, windows bool) string {
	name := strings.TrimRight(remote, "/")
	name = name[strings.LastIndexByte(name, '/')+1:]
	if !windows {
		name = contract.UnescapeName(name)
	}
	return safeName(name, windows)
}

// safeName is LocalName of a name that is not escaped.
func safeName(name string, windows bool) string {
	if windows {
		name = strings.ToValidUTF8(name, "_")
	}
	name = replaceForbidden(name, windows)
	name = fit(name, "")
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

// replaceForbidden leaves bytes that are not UTF-8 as they are, as strings.Map would not.
func replaceForbidden(name string, windows bool) string {
	forbidden := func(r rune) bool { return forbiddenRune(r, windows) }
	if !strings.ContainsFunc(name, forbidden) {
		return name
	}
	var b strings.Builder
	for len(name) > 0 {
		r, n := utf8.DecodeRuneInString(name)
		if forbidden(r) {
			b.WriteByte('_')
		} else {
			b.WriteString(name[:n])
		}
		name = name[n:]
	}
	return b.String()
}

// forbiddenRune: a control, bidirectional or zero-width character in a name would act on
// the terminal that lists the folder, or make the name look like another one.
func forbiddenRune(r rune, windows bool) bool {
	return r == '/' || !plain.Visible(r) || windows && strings.ContainsRune(`<>:"\|?*`, r)
}

// isDevice reports whether Windows takes name for a device: also with an extension,
// and with spaces before it.
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

// isPort: Windows counts the superscript digits too.
func isPort(digit string) bool {
	return utf8.RuneCountInString(digit) == 1 && strings.Contains("0123456789¹²³", digit)
}

// fit puts addition before the extension of name and shortens the rest of the name,
// at a rune, so that all is at most maxName bytes.
func fit(name, addition string) string {
	ext := path.Ext(name)
	if len(ext) > 32 || ext == name {
		ext = ""
	}
	stem := strings.TrimSuffix(name, ext)
	for len(stem)+len(addition)+len(ext) > maxName {
		_, n := utf8.DecodeLastRuneInString(stem)
		stem = stem[:len(stem)-n]
	}
	return stem + addition + ext
}

// numbered is the i-th name to try for a file: name itself, then "name (1).ext".
func numbered(name string, i int) string {
	if i == 0 {
		return name
	}
	dir, base := path.Split(name)
	return dir + fit(base, fmt.Sprintf(" (%d)", i))
}

// partName is the name of the part file of name, short enough for a number and the
// journal's suffix after it. One that had to be shortened holds a hash, as two long
// names may begin alike.
func partName(name string) string {
	const room = maxName - len(partSuffix) - len(journalSuffix) - len(" (99)")
	dir, base := path.Split(name)
	if len(base) > room {
		sum := sha256.Sum256([]byte(base))
		tag := "~" + hex.EncodeToString(sum[:6])
		base = strings.ToValidUTF8(base[:room-len(tag)], "") + tag
	}
	return dir + base + partSuffix
}

// nameFor is the name, with slashes, that a download gets inside root. Into a folder
// that is there and not from the same download it goes under its own name.
func (to Local) nameFor(root *os.Root, from origin, isDir bool) (string, error) {
	name := to.Name
	if onWindows {
		name = filepath.ToSlash(name)
	}
	own := from.ownName(root)
	if name == "" || strings.HasSuffix(name, "/") {
		name += own
	} else if info, err := root.Stat(name); err == nil && info.IsDir() && !(isDir && from.isOf(root, path.Clean(name))) {
		name = path.Join(name, own)
	}
	if err := checkName(name, onWindows); err != nil {
		return "", err
	}
	return path.Clean(name), nil
}

// checkName refuses what leads out of a folder, or can't be a file's name. Names that
// only Windows refuses are refused on Windows only; a drive letter everywhere, as it
// is surely a mistake.
func checkName(name string, windows bool) error {
	refuse := func(why string) error { return fmt.Errorf("%w: %q %s", ErrForbiddenName, name, why) }
	switch {
	case strings.HasPrefix(name, "/"), windows && strings.HasPrefix(name, `\`):
		return refuse("is an absolute path")
	case len(name) >= 2 && name[1] == ':' && (name[0]|0x20) >= 'a' && (name[0]|0x20) <= 'z':
		return refuse("names a drive")
	case strings.ContainsRune(name, 0):
		return refuse("holds a NUL")
	case len(name) > 4096:
		return fmt.Errorf("%w: it is longer than 4,096 bytes", ErrForbiddenName)
	}
	if windows {
		name = strings.ReplaceAll(name, `\`, "/")
	}
	for _, segment := range strings.Split(path.Clean(name), "/") {
		switch {
		case segment == "..":
			return refuse("leads out of its folder")
		case segment == ".":
			return refuse("is no file's name")
		case len(segment) > maxName:
			return refuse("is longer than 255 bytes")
		case segment != safeName(segment, windows):
			return refuse("holds what a file's name can't hold")
		}
	}
	if strings.Contains("/"+name+"/", "/../") {
		return refuse("holds a .. segment")
	}
	return nil
}
