// Package auth lets relay and executor verify that a message comes from the other one and
// is not a replay, and gives them the keys of its sealed query and body. It implements a
// strict HMAC-SHA256 profile of RFC 9421 (HTTP Message Signatures), the shared secret with
// its key schedule (RFC 5869), and the pairing string that carries the secret from the VM to
// the laptop.
//
// It must not log, print a secret, or read a body: shared/seal authenticates bodies. It does
// not deal with status codes and error bodies; its callers translate the errors below.
//
// Start reading at profile.go, which shows the complete signature headers, then at keys.go
// and Exchange. Other implementations can test themselves with testdata/vectors.json.
package auth

import (
	"errors"
	"fmt"
)

// Errors of Verifier.Verify and Exchange.VerifyAnswer. Callers match them with errors.Is.
var (
	// ErrUnauthorized is the only error before the MAC is verified, whatever the cause, so
	// that strangers learn nothing from it.
	ErrUnauthorized = errors.New("unauthorized")
	// ErrClockSkew is a correct MAC with a time that differs too much.
	ErrClockSkew = errors.New("clock skew")
	// ErrNewInstance is a correct MAC of a request for another executor.
	ErrNewInstance = errors.New("the request is intended for another executor")
	// ErrNewStart is a correct MAC of a request for this executor before it was restarted.
	ErrNewStart = errors.New("the executor was restarted after the request was signed")
	// ErrReplayed is a correct MAC with a nonce that was used before.
	ErrReplayed = errors.New("replayed")
	// ErrTooManyNonces wraps ErrReplayed. It is a correct MAC that arrived while the replay
	// window was full, so that replays can't be detected. The window fills up only if a
	// holder of the key sends more than the rate limit allows.
	ErrTooManyNonces = fmt.Errorf("%w: too many nonces", ErrReplayed)
	// ErrUnsigned is an answer without our signature headers: it is not from an executor, or
	// the executor sent it before it had verified the request.
	ErrUnsigned = errors.New("answer is not signed")
	// ErrBadSignature is an answer whose signature is not valid for this request.
	ErrBadSignature = errors.New("answer has an invalid signature")
)
