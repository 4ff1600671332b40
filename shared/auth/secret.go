package auth

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"unicode/utf8"
)

// MinSecretBytes is the least a secret may have: as much as the MAC's hash gives.
const MinSecretBytes = 32

// maxSecretBytes bounds what a file or a pairing string may bring.
const maxSecretBytes = 4096

// Errors of NewSecret.
var (
	ErrShortSecret = fmt.Errorf("secret is shorter than %d bytes", MinSecretBytes)
	ErrLongSecret  = fmt.Errorf("secret is longer than %d bytes", maxSecretBytes)
	// ErrBinarySecret: the JSON of a pairing string would silently change such a key.
	ErrBinarySecret = errors.New("secret is not UTF-8 text")
)

// Secret is the key both sides share. Whatever prints it (fmt with any verb, slog,
// encoding/json) shows its key_id; only Reveal gives the key itself. The zero
// value is no secret.
//
// The key hides behind two pointers because fmt calls no methods on a struct's
// unexported fields. There it would print the bytes of a plain string, and with a
// verb that does not fit, such as %s, also what a single pointer points to.
type Secret struct{ hidden **key }

type key struct {
	bytes []byte
	id    string
}

// NewSecret makes a secret of s, less the newlines at its end that an editor or
// echo leaves. It fails with ErrShortSecret, ErrLongSecret or ErrBinarySecret.
func NewSecret(s string) (Secret, error) {
	for strings.HasSuffix(s, "\n") { // a carriage return alone may be part of a random key
		s = strings.TrimSuffix(strings.TrimSuffix(s, "\n"), "\r")
	}
	switch {
	case len(s) < MinSecretBytes:
		return Secret{}, ErrShortSecret
	case len(s) > maxSecretBytes:
		return Secret{}, ErrLongSecret
	case !utf8.ValidString(s):
		return Secret{}, ErrBinarySecret
	}
	return secretOf(s), nil
}

func secretOf(s string) Secret {
	sum := sha256.Sum256([]byte(s))
	k := &key{bytes: []byte(s), id: hex.EncodeToString(sum[:8])}
	return Secret{&k}
}

// GenerateSecret makes a secret of 32 random bytes, written as 43 characters that
// need no quoting in a shell or a URL.
func GenerateSecret() Secret {
	return secretOf(randomText(MinSecretBytes))
}

// Reveal gives the key itself, for a pairing string or a 0600 file.
func (s Secret) Reveal() string {
	if s.IsZero() {
		return ""
	}
	return string((*s.hidden).bytes)
}

// KeyID names the key without telling it: the first 16 hex digits of its SHA-256.
// Empty for the zero Secret.
func (s Secret) KeyID() string {
	if s.IsZero() {
		return ""
	}
	return (*s.hidden).id
}

// IsZero reports whether there is no secret.
func (s Secret) IsZero() bool { return s.hidden == nil }

// Equal reports, in constant time, whether both are the same key.
func (s Secret) Equal(other Secret) bool {
	return hmac.Equal([]byte(s.Reveal()), []byte(other.Reveal()))
}

// String is what everything that prints a secret shows.
func (s Secret) String() string {
	if s.IsZero() {
		return "[no secret]"
	}
	return "[secret " + (*s.hidden).id + "]"
}

// Format answers every verb of fmt with String.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(s.String())) }

// LogValue answers slog with String.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText answers encoding/json and its like with String.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText refuses: what MarshalText wrote is no secret, and a secret is read
// with NewSecret on purpose only.
func (s *Secret) UnmarshalText([]byte) error {
	return errors.New("a secret is not read from text this way")
}

// mac is HMAC-SHA256 of text under the key (RFC 9421 section 3.3.3).
func (s Secret) mac(text string) []byte {
	h := hmac.New(sha256.New, (*s.hidden).bytes)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// randomText is n random bytes as unpadded base64url.
func randomText(n int) string { return base64.RawURLEncoding.EncodeToString(randomBytes(n)) }

func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails: it ends the program instead
	return b
}
