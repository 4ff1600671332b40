// Package auth proves to relay and executor that a message came from the other
// one, unchanged and once: a strict HMAC-SHA256 profile of RFC 9421 (HTTP
// Message Signatures) with RFC 9530 digests, the shared secret, and the pairing
// string that carries it from the VM to the laptop.
//
// It must not log, must not print a secret, and must not look into a body: a
// digest is all it knows of one. It knows no status codes and no error bodies;
// its callers turn the sentinels below into those.
//
// Start reading at profile.go, which holds the two signatures in full, then at
// Signer and Verifier. testdata/vectors.json lets any other implementation check
// itself.
package auth

import (
	"errors"
	"fmt"
)

// What Verifier.Verify, VerifyDigest and Signer.VerifyResponse report. Callers
// match them with errors.Is.
var (
	// ErrUnauthorized is one answer for every cause before the MAC is known to be
	// right, so that a stranger learns nothing from it.
	ErrUnauthorized = errors.New("unauthorized")
	// ErrClockSkew is a right MAC whose time is too far off.
	ErrClockSkew = errors.New("clock skew")
	// ErrNewInstance is a right MAC over a request that is meant for another executor.
	ErrNewInstance = errors.New("the request is meant for another executor")
	// ErrNewStart is a right MAC over a request that is meant for this executor before it
	// was started again.
	ErrNewStart = errors.New("the executor was started again since")
	// ErrReplayed is a right MAC whose nonce was seen before.
	ErrReplayed = errors.New("replayed")
	// ErrTooManyNonces is an ErrReplayed too: a right MAC that came when the replay
	// window was full, so that a new nonce cannot be told from a seen one. The key's
	// holder has then sent more than the rate limit lets through.
	ErrTooManyNonces = fmt.Errorf("%w: too many nonces", ErrReplayed)
	// ErrDigest is a body that is not the one Content-Digest names.
	ErrDigest = errors.New("body does not match its digest")
	// ErrUnsigned is an answer without a signature of ours: not from an executor, or
	// given before the executor knew who asked.
	ErrUnsigned = errors.New("answer is not signed")
	// ErrBadSignature is an answer whose signature does not hold for this request.
	ErrBadSignature = errors.New("answer's signature does not hold")
)
