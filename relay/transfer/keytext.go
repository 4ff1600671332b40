package transfer

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"strconv"
	"syscall"

	"colabrelay/shared/lazy"
)

// maxKeyText bounds how much of a file is searched for the text of a private key, in bytes from
// its beginning.
const maxKeyText = 4 << 10

var (
	// keyText is the first line of a private key: of PEM (RFC 7468), OpenSSH and OpenPGP, also
	// inside a JSON string, as in the key files of service accounts; of PuTTY and SSH2 (RFC
	// 4716); and the one line of a key of age or WireGuard.
	keyText = lazy.Regexp(`-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY( BLOCK)?-----(\r|\n|\\r|\\n)|^PuTTY-User-Key-File-\d` +
		`|^---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----|(?m:^AGE-(SECRET-KEY|PLUGIN-[A-Z0-9-]{1,40})-1[A-Z0-9]{20})|(?mi:^\s*PrivateKey\s*=\s*[A-Z0-9+/]{43}=)`)
	// A JSON Web Key (RFC 7517) is private if it has the member d, or is symmetric.
	webKey        = lazy.Regexp(`"kty"\s*:`)
	webKeyPrivate = lazy.Regexp(`"d"\s*:\s*"[\w-]{16}|"kty"\s*:\s*"oct"`)
)

// holdsKey reports whether a file begins with a private key, whatever the file is called. A
// file that cannot be read holds none: it is not uploaded either.
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
	start, _ := io.ReadAll(io.LimitReader(f, maxKeyText))
	return isKeyText(start)
}

// jsonEscape matches the escape of an ASCII letter in JSON.
var jsonEscape = lazy.Regexp(`\\u00[4-7][0-9A-Fa-f]`)

// byteOrderMarks may be in front of a text in UTF-16 or UTF-8.
var byteOrderMarks = [][]byte{{0xff, 0xfe}, {0xfe, 0xff}, {0xef, 0xbb, 0xbf}}

func isKeyText(text []byte) bool {
	for _, mark := range byteOrderMarks {
		text = bytes.TrimPrefix(text, mark)
	}
	text = jsonEscape().ReplaceAllFunc(text, func(escape []byte) []byte {
		code, _ := strconv.ParseUint(string(escape[2:]), 16, 8) // two digits of hexadecimal
		return []byte{byte(code)}
	})
	text = bytes.ReplaceAll(text, []byte{0}, nil) // in UTF-16, every other byte of ASCII text
	return keyText().Match(text) || webKey().Match(text) && webKeyPrivate().Match(text)
}
