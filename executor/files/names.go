package files

import "strings"

// PartSuffix ends the hidden names under which uploads arrive.
const PartSuffix = ".colab-part"

// IsPart reports whether a name is kept for files that are being uploaded. They
// are neither shown nor served: a copy of a folder would get holes for content.
func IsPart(name string) bool {
	return strings.HasPrefix(name, ".") && strings.HasSuffix(name, PartSuffix)
}
