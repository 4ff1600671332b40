package auth

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

const testKey = "correct horse battery staple 0123456789"

func testSecret(t testing.TB) Secret {
	t.Helper()
	secret, err := NewSecret(testKey)
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

func TestSecretNeverPrints(t *testing.T) {
	secret := testSecret(t)
	hidden := struct {
		secret Secret
		more   *Secret
		list   []Secret
	}{secret, &secret, []Secret{secret}}
	open := struct{ Secret Secret }{secret}
	pairing := Pairing{URL: "https://example.com", Secret: secret}

	prints := map[string]func() string{
		"slog json": func() string {
			return logged(t, func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(b, nil) }, secret)
		},
		"slog pairing": func() string {
			return logged(t, func(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(b, nil) }, pairing)
		},
		"json":         func() string { return marshalled(t, secret) },
		"json key":     func() string { return marshalled(t, map[Secret]int{secret: 1}) },
		"json pairing": func() string { return marshalled(t, pairing) },
		"error":        func() string { return fmt.Errorf("with %w %v", errors.New("x"), secret).Error() },
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d"} {
		for name, value := range map[string]any{"value": secret, "pointer": &secret, "open": open, "hidden": hidden, "list": []Secret{secret}, "map": map[string]Secret{"k": secret}} {
			prints[verb+" "+name] = func() string { return fmt.Sprintf(verb, value) }
		}
	}
	for name, print := range prints {
		t.Run(name, func(t *testing.T) {
			text := print()
			for _, form := range []string{testKey, testKey[:12], fmt.Sprintf("%x", testKey), fmt.Sprintf("%X", testKey), "99 111 114 114 101 99 116", "0x63, 0x6f, 0x72"} {
				if strings.Contains(text, form) {
					t.Fatalf("prints the key: %s", text)
				}
			}
			if text == "" {
				t.Fatal("prints nothing")
			}
		})
	}
}

func logged(t *testing.T, handler func(*bytes.Buffer) slog.Handler, value any) string {
	t.Helper()
	var out bytes.Buffer
	slog.New(handler(&out)).Info("m", "value", value)
	return out.String()
}

func marshalled(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestNewSecretBounds(t *testing.T) {
	cases := map[string]struct {
		text string
		want error
	}{
		"empty":                         {"", ErrShortSecret},
		"31 bytes":                      {strings.Repeat("x", 31), ErrShortSecret},
		"32 bytes":                      {strings.Repeat("x", 32), nil},
		"32 bytes and two newlines":     {strings.Repeat("x", 32) + "\r\n\n", nil},
		"binary":                        {strings.Repeat("\xff", 32), ErrBinarySecret},
		"carriage return is no newline": {strings.Repeat("x", 31) + "\r", nil},
		"as much as there may be":       {strings.Repeat("x", maxSecretBytes), nil},
		"one more than there may be":    {strings.Repeat("x", maxSecretBytes+1), ErrLongSecret},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			secret, err := NewSecret(c.text)
			if !errors.Is(err, c.want) {
				t.Fatalf("error %v, want %v", err, c.want)
			}
			if err == nil && !strings.HasPrefix(c.text, secret.Reveal()) || strings.HasSuffix(secret.Reveal(), "\n") {
				t.Error("not the same key")
			}
			if secret.IsZero() != (err != nil) {
				t.Error("zero when it should not be, or the other way round")
			}
		})
	}
}
