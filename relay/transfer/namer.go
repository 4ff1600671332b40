package transfer

import (
	"os"
	"unicode/utf8"

	"colabrelay/shared/contract"
	"colabrelay/shared/filename"
)

// namer makes local names for the file system of root.
type namer struct {
	root  *os.Root
	bytes *bool // whether names may contain any bytes; nil until that was tried
}

func newNamer(root *os.Root) *namer { return &namer{root: root} }

// name returns the localName of remote, escaped if the file system accepts only UTF-8.
func (n *namer) name(remote string) string {
	name := localName(remote, onWindows)
	if utf8.ValidString(name) || n.takesBytes() {
		return name
	}
	return filename.Clean(contract.EscapeName(name), onWindows)
}

// takesBytes reports whether a name may be invalid UTF-8. It tries once, because the answer
// depends on the file system: macOS, and exFAT and CIFS on Linux, refuse such names.
func (n *namer) takesBytes() bool {
	if n.bytes == nil {
		probe := hiddenName("a name of bytes", ".\xff")
		f, err := n.root.OpenFile(probe, os.O_CREATE|os.O_WRONLY, 0o600)
		taken := err == nil
		if taken {
			_ = f.Close()
			_ = n.root.Remove(probe)
		}
		n.bytes = &taken
	}
	return *n.bytes
}
