package seal

import (
	"crypto/hkdf"
	"crypto/sha256"
	"testing"
)

func TestKeysAreThoseOfHKDF(t *testing.T) {
	for n := range 65 {
		ikm, salt := randomText(n), randomText(2 * n)[n:]
		key, nonce := derive(ikm, salt)
		for info, got := range map[string]string{"aes128gcm": string(key[:16]), "nonce": string(nonce[:12])} {
			want, err := hkdf.Key(sha256.New, ikm, salt, "Content-Encoding: "+info+"\x00", len(got))
			if err != nil || got != string(want) {
				t.Errorf("%d bytes, %s: %x, want %x, %v", n, info, got, want, err)
			}
		}
	}
}
