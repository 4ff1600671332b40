package transfer

import (
	"os"
	"unicode/utf8"

	"colabrelay/shared/contract"
	"colabrelay/shared/filename"
)

// namer makes local names for the file system that root is on.
type namer struct {
	root  *os.Root
	bytes *bool // names may hold any bytes; nil until that was tried
}

func newNamer(root *os.Root) *namer { return &namer{root: root} }

// name is LocalName; escaped where the file system takes only UTF-8.
func (n *namer) name(remote string) string {
	name := LocalName(remote, onWindows)
	if utf8.ValidString(name) || n.takesBytes() {
		return name
	}
	return filename.Clean(contract.EscapeName(name), onWindows)
}

// takesBytes tries it once: macOS, and Linux's exFAT and CIFS, refuse other names.
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
