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
// The package must not write anything anywhere. Start reading at Offer and Response;
// keys.go holds the key schedule.
package enrollment

import (
	"errors"
	"fmt"
	"log/slog"
	"time"
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
