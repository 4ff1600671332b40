package auth

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"unicode"
)

const (
	pairingPrefix  = "colab-relay:"
	pairingVersion = 1
	// maxPairingBytes bounds what ParsePairing looks at: far more than the longest
	// URL and secret need.
	maxPairingBytes = 16 << 10
)

// ErrPairing is text that is no pairing string. The error that wraps it says why.
var ErrPairing = errors.New("not a pairing string")

// Pairing is what the relay needs to reach one executor: the address and the secret.
type Pairing struct {
	URL    string
	Secret Secret
}

type pairingJSON struct {
	V      int    `json:"v"`
	URL    string `json:"url"`
	Secret string `json:"secret"`
}

// String is the pairing string, secret included: "colab-relay:" and base64url of
// {v,url,secret} without padding. It is meant for the one line that the executor
// prints for a person to paste; logs see LogValue.
func (p Pairing) String() string {
	text, err := json.Marshal(pairingJSON{pairingVersion, p.URL, p.Secret.Reveal()})
	if err != nil {
		panic(err) // strings and a number always marshal
	}
	return pairingPrefix + base64.RawURLEncoding.EncodeToString(text)
}

// LogValue is the pairing without its secret.
func (p Pairing) LogValue() slog.Value {
	return slog.GroupValue(slog.String("url", p.URL), slog.String("key_id", p.Secret.KeyID()))
}

// ParsePairing reads a pairing string as a paste brings it: spaces and line breaks
// anywhere, quotes around it, the command "relay pair" in front, padding at the
// end. Fails with ErrPairing, saying what is wrong, never quoting the text: it
// holds a secret.
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
		return Pairing{}, fmt.Errorf("%w: part of it is missing or changed; copy the whole line again", ErrPairing)
	}
	var p pairingJSON
	if err := json.Unmarshal(raw, &p); err != nil {
		return Pairing{}, fmt.Errorf("%w: part of it is missing or changed; copy the whole line again", ErrPairing)
	}
	return p.check()
}

func (p pairingJSON) check() (Pairing, error) {
	if p.V != pairingVersion {
		return Pairing{}, fmt.Errorf("%w: it is of version %d and this program reads version %d; use a relay and an executor of the same release", ErrPairing, p.V, pairingVersion)
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

// CheckURL accepts the base URL of an executor: http or https, a host, nobody's
// password, nothing after the path. It never quotes what it refuses.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return errors.New("its URL cannot be read")
	case u.Scheme != "http" && u.Scheme != "https":
		return errors.New("its URL does not begin with http:// or https://")
	case u.Hostname() == "":
		return errors.New("its URL names no host")
	case u.User != nil:
		return errors.New("its URL holds a user name")
	case u.RawQuery != "" || strings.Contains(text, "#"):
		return errors.New("its URL holds more than an address")
	}
	return nil
}

// dropPasteMarks removes what terminals, chat programs and shells put around and
// into a pasted line.
func dropPasteMarks(r rune) rune {
	if unicode.IsSpace(r) || !unicode.IsPrint(r) || strings.ContainsRune("\"'`“”‘’", r) {
		return -1
	}
	return r
}
