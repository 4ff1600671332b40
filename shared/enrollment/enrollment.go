// Package enrollment lets a relay hand an executor its secret through a notebook that
// others can read: an exchange of X25519 keys, one sealed grant and one answer.
//
//	relay     NewOffer             → job id, relay key           (public)
//	executor  NewResponse          → executor key                (public)
//	relay     Offer.Seal           → the grant, sealed to that key
//	executor  Response.Open        → secret and tunnel; serves with them
//	executor  Response.Answer      → URL, instance id, MAC       (public)
//	relay     Offer.Check
//
// Who reads all of this later learns no secret: the private keys are only in memory and
// are dropped after use. Who changes a key on the way makes Open fail. Only who changes
// both keys, and so runs notebook page and cells, can read the grant: the page is trusted.
//
// The package must not write anything anywhere. Start reading at Offer and Response.
package enrollment

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"colabrelay/shared/auth"
)

// Lifetime is how long an offer is valid, and how long an executor waits for its grant and
// may take to become reachable.
const Lifetime = 180 * time.Second

const (
	jobBytes = 16
	keyBytes = 32

	// MaxSealedBytes bounds a sealed grant: the longest secret that auth accepts, with
	// every byte escaped in JSON, and the tunnel's settings.
	MaxSealedBytes = 64 << 10
	// maxFieldBytes bounds an answer's URL and instance id.
	maxFieldBytes = 2048
	// maxSettingBytes bounds each of a grant's tunnel settings.
	maxSettingBytes = 512
)

// Errors that callers distinguish.
var (
	ErrExpired = fmt.Errorf("the enrollment has expired: it is valid for %d seconds", int(Lifetime.Seconds()))
	ErrUsed    = errors.New("the enrollment was already used")
	// ErrGrant is a sealed grant that was made for another job or other keys, or was changed.
	ErrGrant = errors.New("the grant does not open: it was made for another executor process, or it was changed")
	// ErrAnswer is an answer of which any part was changed, or that another process made.
	ErrAnswer = errors.New("the answer's MAC does not match: another process made it, or it was changed")
)

// Grant is what the relay gives the executor. Printed by fmt or slog, it shows neither
// secret nor token.
type Grant struct {
	Secret     string `json:"secret"`                // shared by relay and executor; see auth.NewSecret
	Tunnel     string `json:"tunnel"`                // a value of the executor's --tunnel
	NgrokToken string `json:"ngrok_token,omitempty"` // empty: the executor's own
	Domain     string `json:"domain,omitempty"`      // of the ngrok account; empty: ngrok chooses
}

// String is the grant without its secrets.
func (g Grant) String() string { return "[grant for the tunnel " + g.Tunnel + "]" }

// Format prints String for every verb of fmt.
func (g Grant) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(g.String())) }

// LogValue is String, for slog.
func (g Grant) LogValue() slog.Value { return slog.StringValue(g.String()) }

// Answer says where the executor is reachable. It holds no secret.
type Answer struct {
	URL        string `json:"url"`
	InstanceID string `json:"instance_id"`
	MAC        string `json:"mac"` // unpadded base64url; see keys.mac
}

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

// Offer is the relay's side of one enrollment. It is valid for Lifetime and for one
// executor. It is for one goroutine at a time.
type Offer struct {
	job     string
	made    time.Time
	private *ecdh.PrivateKey

	keys *keys // set by Seal
	done bool  // by Check
}

// NewOffer makes a key pair and a job id.
func NewOffer() (*Offer, error) {
	private, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the enrollment's keys: %v", err)
	}
	var job [jobBytes]byte
	_, _ = rand.Read(job[:]) // never fails: it ends the program instead
	return &Offer{job: hex.EncodeToString(job[:]), made: time.Now(), private: private}, nil
}

// JobID names the enrollment: 16 random bytes in hex. It is public.
func (o *Offer) JobID() string { return o.job }

// PublicKey is the relay's key, as unpadded base64url.
func (o *Offer) PublicKey() string { return encoding.EncodeToString(o.private.PublicKey().Bytes()) }

// Seal seals the grant for the executor that has this key. It succeeds once: a second
// key would get the secret too. A key that can't be used does not count. It fails with
// ErrExpired or ErrUsed.
func (o *Offer) Seal(executorKey string, g Grant) (string, error) {
	if err := g.check(); err != nil {
		return "", err
	}
	other, err := publicKey(executorKey)
	if err != nil {
		return "", err
	}
	switch {
	case o.keys != nil:
		return "", ErrUsed
	case expired(o.made):
		return "", ErrExpired
	case other.Equal(o.private.PublicKey()):
		return "", fmt.Errorf("the public key %q is the relay's own: the executor's was not shown", executorKey)
	}
	k, err := newKeys(o.private, other, transcript{o.job, o.private.PublicKey().Bytes(), other.Bytes()})
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(wireGrant(g))
	if err != nil {
		return "", fmt.Errorf("write the grant: %v", err)
	}
	o.keys = k
	return encoding.EncodeToString(k.grant.Seal(nil, nil, text, nil)), nil
}

// Check verifies that the executor that opened the grant gave this answer. It succeeds
// once. It fails with ErrExpired, ErrUsed or ErrAnswer.
func (o *Offer) Check(a Answer) error {
	switch {
	case o.keys == nil:
		return fmt.Errorf("%w: no grant was sealed yet", ErrAnswer)
	case o.done:
		return ErrUsed
	case expired(o.made):
		return ErrExpired
	case len(a.URL) > maxFieldBytes || len(a.InstanceID) > maxFieldBytes:
		return fmt.Errorf("%w: it is longer than an executor's", ErrAnswer)
	}
	mac, err := decode(a.MAC, keyBytes)
	if err != nil || !hmac.Equal(mac, o.keys.mac(a.URL, a.InstanceID)) {
		return ErrAnswer
	}
	if err := auth.CheckURL(a.URL); err != nil {
		return fmt.Errorf("the answer's address: %w", err)
	}
	o.done = true
	return nil
}

// expired asks the wall clock too: the monotonic one of Linux and macOS stops while the computer
// sleeps, and the wall clock may be set back.
func expired(made time.Time) bool {
	return time.Since(made) >= Lifetime || time.Since(made.Round(0)) >= Lifetime
}

// Response is the executor's side of one enrollment: a key pair for one process. It
// is for one goroutine at a time.
type Response struct {
	made   time.Time
	public []byte

	keys   *keys
	opened bool
}

// NewResponse makes a key pair for a relay's offer and derives the keys; the private key
// is dropped then.
func NewResponse(jobID, relayKey string) (*Response, error) {
	if err := CheckJobID(jobID); err != nil {
		return nil, err
	}
	other, err := publicKey(relayKey)
	if err != nil {
		return nil, err
	}
	private, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the enrollment's keys: %v", err)
	}
	return newResponse(jobID, private, other)
}

func newResponse(jobID string, private *ecdh.PrivateKey, relayKey *ecdh.PublicKey) (*Response, error) {
	public := private.PublicKey().Bytes()
	k, err := newKeys(private, relayKey, transcript{jobID, relayKey.Bytes(), public})
	if err != nil {
		return nil, err
	}
	return &Response{made: time.Now(), public: public, keys: k}, nil
}

// PublicKey is the executor's key, as unpadded base64url.
func (r *Response) PublicKey() string { return encoding.EncodeToString(r.public) }

// Open opens the relay's grant. It succeeds once, and then only Answer is possible. It
// fails with ErrExpired, ErrUsed or ErrGrant.
func (r *Response) Open(sealed string) (Grant, error) {
	switch {
	case r.opened:
		return Grant{}, ErrUsed
	case expired(r.made):
		return Grant{}, ErrExpired
	}
	raw, err := decodeSealed(sealed)
	if err != nil {
		return Grant{}, err
	}
	text, err := r.keys.grant.Open(nil, nil, raw, nil)
	if err != nil {
		return Grant{}, ErrGrant
	}
	var g wireGrant
	if json.Unmarshal(text, &g) != nil { // the error could quote a secret
		return Grant{}, errors.New("the grant can't be read: use a relay and an executor of the same release")
	}
	if err := Grant(g).check(); err != nil {
		return Grant{}, err
	}
	r.opened = true
	return Grant(g), nil
}

// Answer tells the relay where the executor is reachable. The grant must be open.
func (r *Response) Answer(url, instanceID string) (Answer, error) {
	if !r.opened {
		return Answer{}, errors.New("an answer needs an open grant")
	}
	return Answer{URL: url, InstanceID: instanceID, MAC: encoding.EncodeToString(r.keys.mac(url, instanceID))}, nil
}

// wireGrant is Grant without the methods that hide its secrets.
type wireGrant Grant

// check finds what no executor could serve with. Its errors quote no secret.
func (g Grant) check() error {
	if _, err := auth.NewSecret(g.Secret); err != nil {
		return fmt.Errorf("the grant's %w", err)
	}
	if g.Tunnel == "" {
		return errors.New("the grant names no tunnel")
	}
	if max(len(g.NgrokToken), len(g.Domain), len(g.Tunnel)) > maxSettingBytes {
		return fmt.Errorf("the grant's tunnel settings are longer than %d bytes", maxSettingBytes)
	}
	return nil
}
