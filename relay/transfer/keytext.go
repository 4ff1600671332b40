package transfer

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strconv"
	"syscall"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"
)

const (
	// maxKeyText bounds how much of a file is searched for the text of a private key, in bytes
	// from its beginning.
	maxKeyText = 4 << 10
	// maxKeyFile is the most that a file with a private key in DER may have, in bytes: room for
	// a PKCS#12 file with its certificates.
	maxKeyFile = 64 << 10
)

var (
	// keyText is the first line of a private key: of PEM (RFC 7468), OpenSSH and OpenPGP, also
	// inside a JSON string, as in the key files of service accounts; of PuTTY and SSH2 (RFC
	// 4716); and the one line of a key of age or WireGuard.
	keyText = regexp.MustCompile(`-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY( BLOCK)?-----(\r|\n|\\r|\\n)|^PuTTY-User-Key-File-\d` +
		`|^---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----|(?m:^AGE-(SECRET-KEY|PLUGIN-[A-Z0-9-]{1,40})-1[A-Z0-9]{20})|(?mi:^\s*PrivateKey\s*=\s*[A-Z0-9+/]{43}=)`)
	// A JSON Web Key (RFC 7517) is private if it has the member d, or is symmetric.
	webKey        = regexp.MustCompile(`"kty"\s*:`)
	webKeyPrivate = regexp.MustCompile(`"d"\s*:\s*"[\w-]{16}|"kty"\s*:\s*"oct"`)
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
	if isKeyText(start) {
		return true
	}
	if len(start) < 2 || start[0] != byte(asn1.SEQUENCE) || info.Size() > maxKeyFile {
		return false
	}
	rest, _ := io.ReadAll(io.LimitReader(f, maxKeyFile))
	return isKeyDER(append(start, rest...))
}

// byteOrderMarks may be in front of a text in UTF-16 or UTF-8.
// jsonEscape matches the escape of an ASCII letter in JSON.
var jsonEscape = regexp.MustCompile(`\\u00[4-7][0-9A-Fa-f]`)

var byteOrderMarks = [][]byte{{0xff, 0xfe}, {0xfe, 0xff}, {0xef, 0xbb, 0xbf}}

func isKeyText(text []byte) bool {
	for _, mark := range byteOrderMarks {
		text = bytes.TrimPrefix(text, mark)
	}
	text = jsonEscape.ReplaceAllFunc(text, func(escape []byte) []byte {
		code, _ := strconv.ParseUint(string(escape[2:]), 16, 8) // two digits of hexadecimal
		return []byte{byte(code)}
	})
	text = bytes.ReplaceAll(text, []byte{0}, nil) // in UTF-16, every other byte of ASCII text
	return keyText.Match(text) || webKey.Match(text) && webKeyPrivate.Match(text)
}

// isKeyDER reports whether a file is a private key in DER: PKCS#1 (RFC 8017) or another
// list of numbers, SEC 1 (RFC 5915), PKCS#8 (RFC 5958), also encrypted, or PKCS#12 (RFC 7292).
func isKeyDER(file []byte) bool {
	var key, part cryptobyte.String
	whole := cryptobyte.String(file)
	if !whole.ReadASN1(&key, asn1.SEQUENCE) { // readers ignore what follows the key
		return false
	}
	if key.PeekASN1Tag(asn1.SEQUENCE) { // PKCS#8, encrypted
		return key.ReadASN1(&part, asn1.SEQUENCE) && part.PeekASN1Tag(asn1.OBJECT_IDENTIFIER) && key.SkipASN1(asn1.OCTET_STRING) && key.Empty()
	}
	var version int
	if !key.ReadASN1Integer(&version) {
		return false
	}
	switch {
	case key.PeekASN1Tag(asn1.OCTET_STRING): // SEC 1
		return version == 1
	case key.PeekASN1Tag(asn1.SEQUENCE): // PKCS#8, where the key is next, or PKCS#12
		return key.ReadASN1(&part, asn1.SEQUENCE) && part.PeekASN1Tag(asn1.OBJECT_IDENTIFIER) &&
			(version <= 1 && key.PeekASN1Tag(asn1.OCTET_STRING) || version == 3)
	}
	numbers := 0
	for key.PeekASN1Tag(asn1.INTEGER) && key.SkipASN1(asn1.INTEGER) {
		numbers++
	}
	return version == 0 && key.Empty() && numbers >= 5 || version == 1 && numbers == 8 // DSA has 5, RSA 8 and perhaps more primes
}
