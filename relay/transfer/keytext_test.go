package transfer

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf16"
)

func utf16Text(order binary.AppendByteOrder, text string) []byte {
	var out []byte
	for _, unit := range utf16.Encode([]rune("\ufeff" + text)) {
		out = order.AppendUint16(out, unit)
	}
	return out
}

func TestPrivateKeysAreFoundInEveryForm(t *testing.T) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	text := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	keys := map[string][]byte{
		"UTF-16LE": utf16Text(binary.LittleEndian, text), "UTF-16BE": utf16Text(binary.BigEndian, text),
		"age":          []byte("# created: 2026-01-01\n# public key: age1x\nAGE-SECRET-KEY-1" + strings.Repeat("Q", 58) + "\n"),
		"age, UTF-16":  utf16Text(binary.LittleEndian, "AGE-SECRET-KEY-1"+strings.Repeat("Q", 58)),
		"PuTTY, UTF-8": []byte("\ufeffPuTTY-User-Key-File-3: ssh-ed25519\n"),
		"WireGuard":    []byte("[Interface]\r\nPrivateKey = " + strings.Repeat("a", 43) + "=\r\n"),
		"SSH2":         []byte("---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\nComment: x\n"),
		"JWK":          []byte(`{"keys": [{"kty" : "EC", "crv": "P-256", "d":"` + strings.Repeat("a", 43) + `"}]}`),
		"JWK, oct":     []byte(`{"k":"c2VjcmV0","kty":"oct"}`),
		"JWK, escaped": []byte(`{"kty":"EC","crv":"P-256","\u0064":"` + strings.Repeat("a", 43) + `"}`),
	}
	keys["WireGuard, lower case"] = bytes.ToLower(keys["WireGuard"])
	others := map[string][]byte{
		"a public key":            []byte("-----BEGIN PUBLIC KEY-----\n"),
		"text that begins with 0": []byte("0 is the first number of the table\n"), "a public JWK": []byte(`{"kty":"EC","crv":"P-256","x":"` + strings.Repeat("a", 43) + `"}`),
		"d elsewhere": []byte(`{"d": "` + strings.Repeat("a", 43) + `"}`), "age's public key": []byte("age1" + strings.Repeat("q", 58)), "nothing": nil,
	}
	dir := t.TempDir()
	found := func(content []byte) bool {
		t.Helper()
		path := filepath.Join(dir, "notes.txt")
		must(t, os.WriteFile(path, content, 0o600))
		err := CheckUpload(t.Context(), path, &Guard{})
		if err != nil && !errors.Is(err, ErrGuarded) {
			t.Fatal(err)
		}
		return err != nil
	}
	for name, content := range keys {
		if !found(content) {
			t.Errorf("%s: not found", name)
		}
	}
	for name, content := range others {
		if found(content) {
			t.Errorf("%s: taken for a private key", name)
		}
	}
}
