package seal

import "crypto/sha256"

// derive returns the blocks of HKDF (RFC 5869) whose first bytes are the key and the nonce
// of record 0. Each is one block of HKDF-Expand: HMAC of the info and a byte 1.
//
// crypto/hkdf makes 27 allocations of it, most of what a short message would cost.
func derive(ikm, salt []byte) (key, nonce [sha256.Size]byte) {
	prk := hmacSHA256(salt, ikm)
	return hmacSHA256(prk[:], []byte("Content-Encoding: aes128gcm\x00\x01")),
		hmacSHA256(prk[:], []byte("Content-Encoding: nonce\x00\x01"))
}

// hmacSHA256 is HMAC of RFC 2104. The key and the text have at most 64 bytes each.
func hmacSHA256(key, text []byte) [sha256.Size]byte {
	const block = sha256.BlockSize
	var inner, outer [2 * block]byte
	for i := range block {
		inner[i], outer[i] = 0x36, 0x5c
	}
	for i, b := range key {
		inner[i] ^= b
		outer[i] ^= b
	}
	sum := sha256.Sum256(inner[:block+copy(inner[block:], text)])
	return sha256.Sum256(outer[:block+copy(outer[block:], sum[:])])
}
