package auth

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/dunglas/httpsfv"
)

const testKey = "correct horse battery staple 0123456789"

func testSecret(t testing.TB) Secret {
	t.Helper()
	secret, err := NewSecret(testKey)
	must(t, err)
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
	must(t, err)
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

func TestAPastedPairingIsAccepted(t *testing.T) {
	want := Pairing{URL: "https://abc.ngrok-free.app", Secret: testSecret(t)}
	line := want.String()
	half := len(line) / 2
	for name, text := range map[string]string{
		"as it is":          line,
		"spaces around":     "  \t" + line + "  ",
		"command with path": "$ ./bin/relay pair " + line,
		"double quotes":     `"` + line + `"`,
		"curly quotes":      "“" + line + "”",
		"wrapped with CRLF": line[:20] + "\r\n" + line[20:half] + "\r\n" + line[half:],
		"zero width space":  line[:half] + "\u200b" + line[half:],
		"padded":            line + "==",
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParsePairing(text)
			must(t, err)
			if got.URL != want.URL || !got.Secret.Equal(want.Secret) {
				t.Errorf("%v", got.URL)
			}
		})
	}
}

func TestPairingRefusals(t *testing.T) {
	long := strings.Repeat("s", 32)
	encode := func(text string) string { return pairingPrefix + base64.RawURLEncoding.EncodeToString([]byte(text)) }
	whole := Pairing{URL: "https://example.com", Secret: testSecret(t)}.String()
	for name, c := range map[string]struct{ text, says string }{
		"empty":              {"", "does not begin with"},
		"nothing after":      {pairingPrefix, "copy the whole line again"},
		"cut off":            {whole[:len(whole)-9], "copy the whole line again"},
		"not JSON":           {encode("nonsense"), "copy the whole line again"},
		"version missing":    {encode(`{"url":"https://a","secret":"` + long + `"}`), "version is 0"},
		"ftp":                {encode(`{"v":1,"url":"ftp://a","secret":"` + long + `"}`), "http://"},
		"port without host":  {encode(`{"v":1,"url":"https://:80","secret":"` + long + `"}`), "has no host"},
		"user in url":        {encode(`{"v":1,"url":"https://u:p@a","secret":"` + long + `"}`), "user name"},
		"url not to be read": {encode(`{"v":1,"url":"https://a:b:c/%zz","secret":"` + long + `"}`), "cannot be read"},
		"no secret":          {encode(`{"v":1,"url":"https://a"}`), "shorter than 32 bytes"},
		"short secret":       {encode(`{"v":1,"url":"https://a","secret":"` + long[1:] + `"}`), "shorter than 32 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParsePairing(c.text)
			if !errors.Is(err, ErrPairing) || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("error %v, want one that says %q", err, c.says)
			}
			if strings.Contains(err.Error(), long[1:]) || strings.Contains(err.Error(), testKey) {
				t.Error("the error shows a secret")
			}
		})
	}
}

// Reading any headers does not panic, and accepted ones are written in exactly one way, which
// a parser of structured fields reads too.
func FuzzReadSignature(f *testing.F) {
	good := send(f, "POST", testTarget, true, began).req.Header
	f.Add(good.Get(HeaderSignatureInput), good.Get(HeaderSignature))
	f.Add(`sig1=("@status" "executor-instance" "signature";req;key="sig1");created=-1;keyid="\"";alg=x`, "sig1=:AA==:")
	f.Add("sig1=(;;;", "sig1=?1, sig1=:/+:")
	f.Fuzz(func(t *testing.T, input, signature string) {
		h := http.Header{HeaderSignatureInput: {input}, HeaderSignature: {signature}}
		for _, sealed := range []bool{false, true} {
			for components, withNonce := range map[string]bool{
				requestComponents("GET", sealed): true, requestComponents("POST", sealed): true, answerComponents(sealed): false,
			} {
				got, err := readSignature(h, components, withNonce)
				if err != nil {
					continue
				}
				if "sig1="+got.write(components) != input || writeMAC(got.mac) != signature {
					t.Fatalf("accepted %q %q but writes %q", input, signature, got.write(components))
				}
				if _, err := httpsfv.UnmarshalDictionary([]string{input}); err != nil {
					t.Fatalf("accepted %q, which is not a dictionary: %v", input, err)
				}
			}
		}
	})
}

// Parsing any text does not panic, and an accepted pairing can be printed and parsed again.
func FuzzParsePairing(f *testing.F) {
	f.Add(Pairing{URL: "https://example.com", Secret: testSecret(f)}.String())
	f.Add("relay pair 'colab-relay:eyJ2IjoxfQ=='")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParsePairing(text)
		if err != nil {
			return
		}
		again, err := ParsePairing(p.String())
		if err != nil || again.URL != p.URL || !again.Secret.Equal(p.Secret) {
			t.Fatalf("does not survive its own text: %v", err)
		}
	})
}
