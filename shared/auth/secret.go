package auth

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/filename"
	"colabrelay/shared/seal"
)

// MinSecretBytes is the minimum length of a secret: the output size of the MAC's hash.
const MinSecretBytes = 32

// maxSecretBytes limits secrets from files and pairing strings.
const maxSecretBytes = 4096

// Errors of NewSecret.
var (
	ErrShortSecret = fmt.Errorf("secret is shorter than %d bytes", MinSecretBytes)
	ErrLongSecret  = fmt.Errorf("secret is longer than %d bytes", maxSecretBytes)
	// ErrBinarySecret is a secret that the JSON of a pairing string would silently change.
	ErrBinarySecret = errors.New("secret is not UTF-8 text")
)

// Secret is the key that both sides share. Printed by fmt with any verb, slog or
// encoding/json, it shows its key_id. Only Reveal returns the key. The zero value is not a
// secret.
//
// The key is behind two pointers because fmt calls no methods on unexported fields of a
// struct: it would print the bytes of a plain string there, and with a verb such as %s also
// the target of a single pointer.
type Secret struct{ hidden **key }

type key struct {
	bytes []byte
	id    string
	prk   []byte // see derive
	sign  []byte // the HMAC key
}

// NewSecret makes a secret of s without the newlines that an editor or echo adds at the
// end. It fails with ErrShortSecret, ErrLongSecret or ErrBinarySecret.
func NewSecret(s string) (Secret, error) {
	for strings.HasSuffix(s, "\n") { // a carriage return alone may be part of a random key
		s = strings.TrimSuffix(strings.TrimSuffix(s, "\n"), "\r")
	}
	switch {
	case len(s) < MinSecretBytes:
		return Secret{}, ErrShortSecret
	case len(s) > maxSecretBytes:
		return Secret{}, ErrLongSecret
	case !utf8.ValidString(s), strings.Contains(s, "\x00"): // as in a file that a crash filled with zeros
		return Secret{}, ErrBinarySecret
	}
	return secretOf(s), nil
}

func secretOf(s string) Secret {
	sum := sha256.Sum256([]byte(s))
	prk := pseudorandomKey([]byte(s))
	sign := derive(prk, labelSign)
	k := &key{bytes: []byte(s), id: hex.EncodeToString(sum[:8]), prk: prk, sign: sign[:]}
	return Secret{&k}
}

// GenerateSecret makes a secret of 32 random bytes, encoded as 43 characters that need no
// quoting in a shell or URL.
func GenerateSecret() Secret {
	return secretOf(randomText(MinSecretBytes))
}

// Reveal returns the key, for a pairing string or a file with mode 0600.
func (s Secret) Reveal() string {
	if s.IsZero() {
		return ""
	}
	return string((*s.hidden).bytes)
}

// KeyID identifies the key without revealing it: the first 16 hex digits of its SHA-256.
// It is empty for the zero Secret.
func (s Secret) KeyID() string {
	if s.IsZero() {
		return ""
	}
	return (*s.hidden).id
}

// IsZero reports whether s is the zero Secret.
func (s Secret) IsZero() bool { return s.hidden == nil }

// Equal reports, in constant time, whether both keys are the same.
func (s Secret) Equal(other Secret) bool {
	return hmac.Equal([]byte(s.Reveal()), []byte(other.Reveal()))
}

// String shows the key_id, as everything does that prints a secret.
func (s Secret) String() string {
	if s.IsZero() {
		return "[no secret]"
	}
	return "[secret " + (*s.hidden).id + "]"
}

// Format prints String for every verb of fmt.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(s.String())) }

// LogValue is String, for slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText is String, for encoding/json and other encoders.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText always fails, because MarshalText does not write the secret. Use NewSecret
// to read one.
func (s *Secret) UnmarshalText([]byte) error {
	return errors.New("a secret can't be unmarshaled")
}

// mac is HMAC-SHA256 of text under the signing key (RFC 9421 section 3.3.3).
func (s Secret) mac(text string) []byte {
	h := hmac.New(sha256.New, (*s.hidden).sign)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// derive is the key of label and fields.
func (s Secret) derive(label string, fields ...string) seal.Key {
	return derive((*s.hidden).prk, label, fields...)
}

// randomText is n random bytes as unpadded base64url.
func randomText(n int) string { return base64.RawURLEncoding.EncodeToString(randomBytes(n)) }

func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails: it ends the program instead
	return b
}

// maxSecretFile is the maximum size of a secret file, because a wrong path may name any
// file. A secret with the newlines after it is much shorter.
const maxSecretFile = 2 * maxSecretBytes

// ReadSecretFile reads a secret from a regular file. Its errors name the path and wrap those of
// NewSecret, shared/bounded and the file system.
func ReadSecretFile(path string) (Secret, error) {
	path, err := filename.Typed(path)
	if err != nil {
		return Secret{}, err
	}
	text, err := bounded.ReadFile(path, maxSecretFile)
	if errors.Is(err, bounded.ErrTooLong) {
		return Secret{}, fmt.Errorf("%q does not contain a secret: %w", path, err)
	} else if err != nil {
		return Secret{}, err
	}
	secret, err := NewSecret(string(text))
	if err != nil {
		return Secret{}, fmt.Errorf("%q: %w", path, err)
	}
	return secret, nil
}

// The key schedule. The secret itself signs and seals nothing:
//
//	prk = HKDF-Extract(SHA-256, salt = "colab-relay v" and contract.Protocol, secret)
//	key(label, fields…) = HKDF-Expand(prk, label ‖ 0x00 ‖ length(field) ‖ field …, 32)
//
// A length has four bytes in big-endian order (HKDF: RFC 5869). The fields bind a key to
// one query, one body of a request or one head of an answer, so that a sealed text opens
// nowhere else.
const (
	labelSign    = "sign"    // no fields; the HMAC key of RFC 9421
	labelQuery   = "query"   // method, path, nonce
	labelRequest = "request" // nonce
	labelAnswer  = "answer"  // the raw bytes of the answer's MAC, which covers the request's
)

// keySalt has the protocol's number, so that programs of two protocols do not verify each other.
var keySalt = "colab-relay v" + strconv.Itoa(contract.Protocol)

// pseudorandomKey is the prk of secret.
func pseudorandomKey(secret []byte) []byte {
	prk, err := hkdf.Extract(sha256.New, secret, []byte(keySalt))
	if err != nil {
		panic(err) // only in FIPS mode with a short key; a secret is long enough
	}
	return prk
}

// derive is the key of label and fields.
func derive(prk []byte, label string, fields ...string) seal.Key {
	info := append(make([]byte, 0, 128), label...)
	info = append(info, 0)
	for _, field := range fields {
		info = binary.BigEndian.AppendUint32(info, uint32(len(field)))
		info = append(info, field...)
	}
	key, err := hkdf.Expand(sha256.New, prk, string(info), len(seal.Key{}))
	if err != nil {
		panic(err) // 32 bytes are always available
	}
	return seal.Key(key)
}

const (
	pairingPrefix  = "colab-relay:"
	pairingVersion = 1
	// maxPairingBytes limits the text that ParsePairing reads. It is far more than the
	// longest URL and secret need.
	maxPairingBytes = 16 << 10
)

// ErrPairing is text that is not a pairing string. The error that wraps it gives the reason.
var ErrPairing = errors.New("not a pairing string")

// Pairing is what a relay needs to connect to an executor.
type Pairing struct {
	URL    string
	Secret Secret
}

type pairingJSON struct {
	V      int    `json:"v"`
	URL    string `json:"url"`
	Secret string `json:"secret"`
}

// String is the pairing string, which includes the secret: "colab-relay:" and unpadded
// base64url of {v,url,secret}. Use it only for the line that the executor prints for a
// person to paste. Logs contain LogValue instead.
func (p Pairing) String() string {
	text, err := json.Marshal(pairingJSON{pairingVersion, p.URL, p.Secret.Reveal()})
	if err != nil {
		panic(err) // strings and a number always marshal
	}
	return pairingPrefix + base64.RawURLEncoding.EncodeToString(text)
}

// LogValue is the pairing without the secret.
func (p Pairing) LogValue() slog.Value {
	return slog.GroupValue(slog.String("url", p.URL), slog.String("key_id", p.Secret.KeyID()))
}

// ParsePairing reads a pasted pairing string. It accepts spaces and line breaks anywhere,
// quotes around it, the command "relay pair" before it and padding after it. It fails with
// ErrPairing and the reason, but does not quote the text, which contains a secret.
func ParsePairing(text string) (Pairing, error) {
	if len(text) > maxPairingBytes {
		return Pairing{}, fmt.Errorf("%w: it is longer than %d bytes", ErrPairing, maxPairingBytes)
	}
	text = strings.Map(dropPasteMarks, text)
	_, encoded, found := strings.Cut(text, pairingPrefix)
	if !found {
		return Pairing{}, fmt.Errorf("%w: it does not begin with %q", ErrPairing, pairingPrefix)
	}
	raw, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(encoded, "="))
	if err != nil {
		return Pairing{}, fmt.Errorf("%w: part of it is missing or was changed; copy the whole line again", ErrPairing)
	}
	var p pairingJSON
	if err := json.Unmarshal(raw, &p); err != nil {
		return Pairing{}, fmt.Errorf("%w: part of it is missing or was changed; copy the whole line again", ErrPairing)
	}
	return p.check()
}

func (p pairingJSON) check() (Pairing, error) {
	if p.V != pairingVersion {
		return Pairing{}, fmt.Errorf("%w: its version is %d and this program supports version %d; use a relay and an executor of the same release", ErrPairing, p.V, pairingVersion)
	}
	if err := CheckURL(p.URL); err != nil {
		return Pairing{}, fmt.Errorf("%w: %w", ErrPairing, err)
	}
	secret, err := NewSecret(p.Secret)
	if err != nil {
		return Pairing{}, fmt.Errorf("%w: its %w", ErrPairing, err)
	}
	return Pairing{URL: p.URL, Secret: secret}, nil
}

// CheckURL checks the base URL of an executor: http or https, a host, no user name or
// password, and nothing after the host: the executor would receive another path than the one that
// was signed. Its errors do not quote the URL.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return errors.New("the URL cannot be read")
	case u.Scheme != "http" && u.Scheme != "https":
		return errors.New("the URL must begin with http:// or https://")
	case u.Hostname() == "":
		return errors.New("the URL has no host")
	case strings.HasSuffix(u.Host, ":"):
		return errors.New("the URL has no port after the last colon: add the port, or remove the colon")
	case u.User != nil:
		return errors.New("the URL contains a user name")
	case u.RawQuery != "" || strings.Contains(text, "#"):
		return errors.New("the URL contains a query or a fragment")
	case u.Path != "" && u.Path != "/":
		return errors.New("the URL contains a path")
	}
	return nil
}

// dropPasteMarks removes characters that terminals, chat programs and shells add to a pasted
// line.
func dropPasteMarks(r rune) rune {
	if unicode.IsSpace(r) || !unicode.IsPrint(r) || strings.ContainsRune("\"'`“”‘’", r) {
		return -1
	}
	return r
}
