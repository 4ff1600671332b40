package files

import "strings"

// PartSuffix ends the names of the hidden files that uploads are received in.
const PartSuffix = ".colab-part"

// IsPart reports whether a name is reserved for files that are being uploaded. They are
// neither listed nor served, because a copy of one would have holes.
func IsPart(name string) bool {
	return strings.HasPrefix(name, ".") && strings.HasSuffix(name, PartSuffix)
}
