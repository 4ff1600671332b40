package enrollment

import (
	"crypto/ecdh"
	"crypto/hmac"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"colabrelay/shared/auth"
)

// Offer is the relay's side of one enrollment. It is valid for Lifetime and for one
// executor. Its methods may be called concurrently.
type Offer struct {
	job     string
	made    time.Time
	private *ecdh.PrivateKey

	mu   sync.Mutex
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
	o.mu.Lock()
	defer o.mu.Unlock()
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
	o.mu.Lock()
	defer o.mu.Unlock()
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
