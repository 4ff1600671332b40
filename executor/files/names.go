package files

import "strings"

// partSuffix ends the hidden names under which uploads arrive.
const partSuffix = ".colab-part"

// isPart reports whether a name is kept for files that are being uploaded. They
// are neither shown nor served: a copy of a folder would get holes for content.
func isPart(name string) bool {
	return strings.HasPrefix(name, ".") && strings.HasSuffix(name, partSuffix)
}
