package transfer

import (
	"io"
	"io/fs"
	"os"
	"regexp"
	"syscall"
)

// maxKeyText bounds how much of a file is searched for a private key, in bytes from its
// beginning.
const maxKeyText = 4096

// keyText is the first line of a private key: of PEM (RFC 7468), OpenSSH and OpenPGP, also
// inside a JSON string, as in the key files of service accounts; and of PuTTY.
var keyText = regexp.MustCompile(`-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY( BLOCK)?-----(\r|\n|\\r|\\n)|^PuTTY-User-Key-File-\d`)

// holdsKey reports whether a file's first maxKeyText bytes contain a private key, whatever
// the file is called. A file that cannot be read holds none: it is not uploaded either.
func holdsKey(real string, info fs.FileInfo) bool {
	if !info.Mode().IsRegular() {
		return false
	}
	f, err := os.OpenFile(real, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO may have replaced the file
	if err != nil {
		return false
	}
	defer f.Close()
	if open, err := f.Stat(); err != nil || !os.SameFile(open, info) {
		return false
	}
	text, _ := io.ReadAll(io.LimitReader(f, maxKeyText))
	return keyText.Match(text)
}
