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
