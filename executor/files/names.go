package files

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// partSuffix ends the hidden names under which uploads arrive.
const partSuffix = ".colab-part"

// isPart reports whether a name is kept for files that are being uploaded. They
// are neither shown nor served: a copy of a folder would get holes for content.
func isPart(name string) bool {
	return strings.HasPrefix(name, ".") && strings.HasSuffix(name, partSuffix)
}

// escape writes the bytes of a name that are not UTF-8 as \xNN, because JSON can't
// carry them: encoding/json would turn each into U+FFFD and two names into one.
func escape(name string) string {
	if utf8.ValidString(name) {
		return name
	}
	var b strings.Builder
	for len(name) > 0 {
		r, n := utf8.DecodeRuneInString(name)
		if r == utf8.RuneError && n == 1 {
			fmt.Fprintf(&b, `\x%02x`, name[0])
		} else {
			b.WriteString(name[:n])
		}
		name = name[n:]
	}
	return b.String()
}

var escaped = regexp.MustCompile(`\\x[89a-f][0-9a-f]`)

// unescape undoes escape, so that a name from a listing can be asked for again. A
// name that holds such letters itself is looked for first as it stands.
func unescape(name string) string {
	if !strings.Contains(name, `\x`) {
		return name
	}
	return escaped.ReplaceAllStringFunc(name, func(s string) string {
		n, _ := strconv.ParseUint(s[2:], 16, 8)
		return string([]byte{byte(n)})
	})
}
