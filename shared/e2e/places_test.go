package e2e

import (
	"crypto/ecdh"
	"encoding/base64"
	"encoding/hex"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// places is everything that may show a secret, by name.
type places map[string][]byte

// addProcesses adds the arguments and the environment of every process of this computer.
func (p places) addProcesses() {
	for _, pattern := range []string{"/proc/[0-9]*/cmdline", "/proc/[0-9]*/environ"} {
		files, _ := filepath.Glob(pattern)
		for _, file := range files {
			p[file], _ = os.ReadFile(file) // a process may have ended
		}
	}
}

// addFiles adds all files below a folder but those at these paths.
func (p places) addFiles(t *testing.T, folder string, but ...string) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && !slices.Contains(but, path) {
			p[path], _ = os.ReadFile(path) // a file may be removed meanwhile
		}
		return nil
	})
	must(t, err)
}

// hold fails for each place that shows one of the secrets in any form, or the private key of
// one of the public keys.
func (p places) hold(t *testing.T, secrets map[string]string, publicKeys ...string) {
	t.Helper()
	for name, content := range p {
		views := viewsOf(content)
		for what, secret := range secrets {
			if form := find(secret, views); form != "" {
				t.Errorf("%s shows the %s, %s", name, what, form)
			}
		}
		for _, key := range privateKeys(content, publicKeys) {
			t.Errorf("%s shows the private key of %s", name, key)
		}
	}
}

// looksLikeKey matches 32 bytes in hexadecimal or base64.
var looksLikeKey = regexp.MustCompile(`[A-Za-z0-9+/_-]{43,64}`)

// privateKeys returns those of the X25519 public keys, in unpadded base64url, whose private key
// a text contains.
func privateKeys(text []byte, public []string) (found []string) {
	for _, match := range looksLikeKey.FindAll(text, -1) {
		for _, raw := range keysIn(string(match)) {
			private, err := ecdh.X25519().NewPrivateKey(raw)
			if err == nil && slices.Contains(public, base64.RawURLEncoding.EncodeToString(private.PublicKey().Bytes())) {
				found = append(found, base64.RawURLEncoding.EncodeToString(private.PublicKey().Bytes()))
			}
		}
	}
	return found
}

// keysIn returns the 32 bytes that a text may stand for.
func keysIn(text string) (keys [][]byte) {
	if raw, err := hex.DecodeString(text); err == nil && len(raw) == 32 {
		keys = append(keys, raw)
	}
	for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		if raw, err := e.DecodeString(text[:43]); err == nil {
			keys = append(keys, raw)
		}
	}
	return keys
}
