package auth

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"strconv"

	"colabrelay/shared/contract"
	"colabrelay/shared/seal"
)

// The key schedule. The secret itself signs and seals nothing:
//
//	prk = HKDF-Extract(SHA-256, salt = "colab-relay v" and contract.Protocol, secret)
//	key(label, fields…) = HKDF-Expand(prk, label ‖ 0x00 ‖ length(field) ‖ field …, 32)
//
// A length has four bytes in big-endian order (HKDF: RFC 5869). The fields bind a key to
// one query, one body of a request or one head of an answer, so that a sealed text opens
// nowhere else.
const (
	labelSign    = "sign"    // no fields; the HMAC key of RFC 9421
	labelQuery   = "query"   // method, path, nonce
	labelRequest = "request" // nonce
	labelAnswer  = "answer"  // the raw bytes of the answer's MAC, which covers the request's
)

// keySalt has the protocol's number, so that programs of two protocols do not verify each other.
var keySalt = "colab-relay v" + strconv.Itoa(contract.Protocol)

// pseudorandomKey is the prk of secret.
func pseudorandomKey(secret []byte) []byte {
	prk, err := hkdf.Extract(sha256.New, secret, []byte(keySalt))
	if err != nil {
		panic(err) // only in FIPS mode with a short key; a secret is long enough
	}
	return prk
}

// derive is the key of label and fields.
func derive(prk []byte, label string, fields ...string) seal.Key {
	info := append(make([]byte, 0, 128), label...)
	info = append(info, 0)
	for _, field := range fields {
		info = binary.BigEndian.AppendUint32(info, uint32(len(field)))
		info = append(info, field...)
	}
	key, err := hkdf.Expand(sha256.New, prk, string(info), len(seal.Key{}))
	if err != nil {
		panic(err) // 32 bytes are always available
	}
	return seal.Key(key)
}
