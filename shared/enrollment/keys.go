package enrollment

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// The key schedule:
//
//	shared       = X25519(own private key, other public key); all zeros are refused
//	prk          = HKDF-Extract(SHA-256, salt, shared)
//	key(label)   = HKDF-Expand(prk, fields(label, job id, relay key, executor key), 32)
//	sealed grant = nonce (12 random bytes) ‖ AES-256-GCM(key("grant"), nonce, JSON of Grant)
//	mac          = HMAC-SHA256(key("answer"), fields(job id, relay key, executor key, URL, instance id))
//	fields(…)    = each field after its length as 4 bytes big-endian
//
// The job id enters as the hex text that cells show, the public keys as 32 bytes. Keys and
// sealed grants are shown as unpadded base64url.
const (
	salt        = "colab-relay enrol v1"
	labelGrant  = "grant"  // from the relay to the executor
	labelAnswer = "answer" // from the executor to the relay
)

// encoding refuses a text that differs from the one that it would write.
var encoding = base64.RawURLEncoding.Strict()

// transcript is what both sides must have seen alike.
type transcript struct {
	job                   string
	relayKey, executorKey []byte
}

// keys protect one enrollment.
type keys struct {
	transcript transcript
	grant      cipher.AEAD
	answer     []byte
}

// newKeys derives the keys of own and the other side's public key.
func newKeys(own *ecdh.PrivateKey, other *ecdh.PublicKey, t transcript) (*keys, error) {
	shared, err := own.ECDH(other) // refuses an all-zero result (RFC 7748 section 6.1)
	if err != nil {
		return nil, fmt.Errorf("the public key %q is weak: %v", encoding.EncodeToString(other.Bytes()), err)
	}
	prk, err := hkdf.Extract(sha256.New, shared, []byte(salt))
	if err != nil {
		return nil, fmt.Errorf("derive the enrollment's keys: %v", err)
	}
	k := &keys{transcript: t}
	grantKey, err := k.derive(prk, labelGrant)
	if err != nil {
		return nil, err
	}
	if k.answer, err = k.derive(prk, labelAnswer); err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(grantKey)
	if err != nil {
		return nil, fmt.Errorf("make the grant's cipher: %v", err)
	}
	k.grant, err = cipher.NewGCMWithRandomNonce(block)
	return k, err
}

func (k *keys) derive(prk []byte, label string) ([]byte, error) {
	t := k.transcript
	info := fields([]byte(label), []byte(t.job), t.relayKey, t.executorKey)
	key, err := hkdf.Expand(sha256.New, prk, string(info), keyBytes)
	if err != nil {
		return nil, fmt.Errorf("derive the enrollment's keys: %v", err)
	}
	return key, nil
}

// mac authenticates an answer.
func (k *keys) mac(url, instanceID string) []byte {
	t := k.transcript
	h := hmac.New(sha256.New, k.answer)
	h.Write(fields([]byte(t.job), t.relayKey, t.executorKey, []byte(url), []byte(instanceID)))
	return h.Sum(nil)
}

// fields joins fields so that no two lists give the same bytes.
func fields(list ...[]byte) []byte {
	var joined []byte
	for _, field := range list {
		joined = binary.BigEndian.AppendUint32(joined, uint32(len(field)))
		joined = append(joined, field...)
	}
	return joined
}

// publicKey reads the other side's key.
func publicKey(text string) (*ecdh.PublicKey, error) {
	raw, err := decode(text, keyBytes)
	if err != nil {
		return nil, fmt.Errorf("the public key %.64q can't be used: %w", text, err)
	}
	return ecdh.X25519().NewPublicKey(raw)
}

// decode reads unpadded base64url of exactly size bytes.
func decode(text string, size int) ([]byte, error) {
	if len(text) != encoding.EncodedLen(size) {
		return nil, fmt.Errorf("it has %d characters instead of %d", len(text), encoding.EncodedLen(size))
	}
	raw, err := encoding.DecodeString(text) // which skips line breaks
	if err != nil || len(raw) != size {
		return nil, errors.New("it is not base64url")
	}
	return raw, nil
}

// CheckJobID reports whether text has the form of a job id: 32 lower-case hex digits.
func CheckJobID(text string) error {
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != jobBytes || hex.EncodeToString(raw) != text {
		return fmt.Errorf("job id %.64q: must be %d lower-case hex digits", text, 2*jobBytes)
	}
	return nil
}

// CheckPublicKey reports whether text has the form of a public key.
func CheckPublicKey(text string) error {
	_, err := publicKey(text)
	return err
}

// CheckSealed reports whether text has the form of a sealed grant.
func CheckSealed(text string) error {
	_, err := decodeSealed(text)
	return err
}

// decodeSealed reads a sealed grant's base64url. Its errors wrap ErrGrant.
func decodeSealed(text string) ([]byte, error) {
	if len(text) > MaxSealedBytes {
		return nil, fmt.Errorf("%w: it is longer than %d bytes", ErrGrant, MaxSealedBytes)
	}
	raw, err := encoding.DecodeString(text)
	if err != nil || strings.ContainsAny(text, "\r\n") {
		return nil, fmt.Errorf("%w: it is not base64url", ErrGrant)
	}
	return raw, nil
}
