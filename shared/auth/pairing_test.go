package auth

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"
)

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
			if err != nil {
				t.Fatal(err)
			}
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
