package transfer

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"
)

// made returns what a function that can't fail here has made.
func made(t *testing.T) func(der []byte, err error) []byte {
	t.Helper()
	return func(der []byte, err error) []byte {
		must(t, err)
		return der
	}
}

func utf16Text(order binary.AppendByteOrder, text string) []byte {
	var out []byte
	for _, unit := range utf16.Encode([]rune("\ufeff" + text)) {
		out = order.AppendUint16(out, unit)
	}
	return out
}

// kind is an AlgorithmIdentifier, or a ContentInfo.
type kind struct {
	ID      asn1.ObjectIdentifier
	Content asn1.RawValue `asn1:"optional"`
}

func TestPrivateKeysAreFoundInEveryForm(t *testing.T) {
	der := made(t)
	pair, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	number := func() *big.Int { return new(big.Int).Lsh(big.NewInt(3), 1000) }
	encrypted := kind{ID: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 5, 13}}
	text := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der(x509.MarshalPKCS8PrivateKey(pair))}))
	keys := map[string][]byte{
		"PKCS#1": x509.MarshalPKCS1PrivateKey(pair), "PKCS#8, RSA": der(x509.MarshalPKCS8PrivateKey(pair)), "PKCS#8, Ed25519": der(x509.MarshalPKCS8PrivateKey(edwards)),
		"SEC 1": der(x509.MarshalECPrivateKey(curve)),
		"DSA":   der(asn1.Marshal([]*big.Int{new(big.Int), number(), number(), number(), number(), number()})),
		"PKCS#8, encrypted": der(asn1.Marshal(struct {
			Algorithm kind
			Data      []byte
		}{encrypted, make([]byte, 1200)})),
		"PKCS#12": der(asn1.Marshal(struct {
			Version int
			Safe    kind
		}{3, kind{ID: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 1}}})),
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
	keys["with a line break"] = append(slices.Clone(keys["PKCS#1"]), '\n')
	keys["WireGuard, lower case"] = bytes.ToLower(keys["WireGuard"])
	certificate := der(x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "x"}},
		&x509.Certificate{SerialNumber: big.NewInt(1)}, &pair.PublicKey, pair))
	others := map[string][]byte{
		"a certificate": certificate, "a request": der(x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, pair)),
		"a public key": der(x509.MarshalPKIXPublicKey(&pair.PublicKey)), "a public key, PKCS#1": x509.MarshalPKCS1PublicKey(&pair.PublicKey),
		"four numbers": der(asn1.Marshal([]int{0, 1, 2, 3})), "a key that is cut": keys["SEC 1"][:60],
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

func FuzzKeyDER(f *testing.F) {
	f.Add([]byte{0x30, 3, 2, 1, 0})
	f.Add([]byte{0x30, 0x84, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(_ *testing.T, file []byte) { isKeyDER(file) })
}
