package enrollment

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"colabrelay/shared/auth"
)

// Response is the executor's side of one enrollment: a key pair for one process. Its
// methods may be called concurrently.
type Response struct {
	made   time.Time
	public []byte

	mu     sync.Mutex
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
	r.mu.Lock()
	defer r.mu.Unlock()
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
	r.mu.Lock()
	defer r.mu.Unlock()
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
