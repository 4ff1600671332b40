package config

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strings"

	"colabrelay/shared/bounded"
	"colabrelay/shared/lazy"
)

// Ngrok is the ngrok account whose tunnels the executors use that this relay starts. The
// relay opens no tunnel itself.
type Ngrok struct {
	Token  Token  // empty: the VM looks for one of its own
	Domain string // static domain of the account, such as name.ngrok-free.app; may be empty
}

// Token is an ngrok authtoken. Printed by fmt, slog or encoding/json, it does not show
// itself.
type Token string

// Format prints String for every verb of fmt.
func (t Token) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(t.String())) }

// String says whether there is a token.
func (t Token) String() string {
	if t == "" {
		return "[no token]"
	}
	return "[token]"
}

// LogValue is String, for slog.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.String()) }

// MarshalText is String, for encoding/json and other encoders.
func (t Token) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// maxToken bounds an authtoken and the file that holds it, in bytes. Tokens have about 50.
const maxToken = 1024

var (
	tokenPattern  = lazy.Regexp(`^[A-Za-z0-9_-]+$`)
	domainPattern = lazy.Regexp(`^[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+$`)
)

// LoadNgrok reads NGROK_AUTHTOKEN, or the file that NGROK_AUTHTOKEN_FILE names, and
// NGROK_DOMAIN. Its errors name the setting and never contain the token.
func LoadNgrok(s Settings) (Ngrok, error) {
	token, err := ngrokToken(s)
	if err != nil {
		return Ngrok{}, err
	}
	domain := strings.TrimSuffix(strings.TrimPrefix(s.Get("NGROK_DOMAIN"), "https://"), "/")
	if domain != "" && (len(domain) > 253 || !domainPattern().MatchString(domain)) {
		return Ngrok{}, fmt.Errorf("NGROK_DOMAIN is %q: use a name such as your-name.ngrok-free.app", domain)
	}
	return Ngrok{Token: token, Domain: domain}, nil
}

func ngrokToken(s Settings) (Token, error) {
	variable, text := "NGROK_AUTHTOKEN", s.Get("NGROK_AUTHTOKEN")
	if path := s.Get("NGROK_AUTHTOKEN_FILE"); text == "" && path != "" {
		variable = "NGROK_AUTHTOKEN_FILE"
		path, err := expandHome(path)
		if err == nil {
			text, err = readPrivate(path, maxToken)
		}
		if err != nil {
			return "", fmt.Errorf("%s: %w", variable, err)
		}
	}
	text = strings.TrimSpace(text)
	if text == "" && variable == "NGROK_AUTHTOKEN" {
		return "", nil
	}
	if len(text) > maxToken || !tokenPattern().MatchString(text) {
		return "", fmt.Errorf("%s does not contain an ngrok authtoken: copy it from https://dashboard.ngrok.com/get-started/your-authtoken", variable)
	}
	return Token(text), nil
}

// readPrivate reads a regular file of at most limit bytes that only this user may read. A
// pipe could make the relay wait for ever.
func readPrivate(path string, limit int64) (string, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%q is not a regular file", path)
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0:
		return "", fmt.Errorf("other users of this computer may read %q (mode %#o): run chmod 600 on it", path, info.Mode().Perm())
	}
	text, err := bounded.ReadFile(path, limit)
	if errors.Is(err, bounded.ErrTooLong) {
		err = fmt.Errorf("%q is %w, so it is no authtoken", path, err)
	}
	return string(text), err
}
