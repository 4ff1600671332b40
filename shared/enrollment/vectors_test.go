package enrollment

import (
	"bytes"
	"crypto/ecdh"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite testdata/vectors.json")

const vectorsFile = "testdata/vectors.json"

// vectors is testdata/vectors.json: one enrollment with all inputs and outputs.
type vectors struct {
	How             string `json:"how"`
	Job             string `json:"job"`
	RelayPrivate    string `json:"relay_private_hex"`
	RelayKey        string `json:"relay_key"`
	ExecutorPrivate string `json:"executor_private_hex"`
	ExecutorKey     string `json:"executor_key"`
	GrantKey        string `json:"grant_key_hex"`
	AnswerKey       string `json:"answer_key_hex"`
	Grant           string `json:"grant_json"`
	Sealed          string `json:"sealed"` // its nonce is random: an update makes another one
	Answer          Answer `json:"answer"`
}

const how = "shared = X25519(private key of one side, public key of the other). fields(a, b, ...) = each field after its length as 4 bytes big-endian. " +
	"key(label) = HKDF-SHA256(shared, salt \"colab-relay enrol v1\", info fields(label, job as text, relay key, executor key), 32 bytes). " +
	"sealed = nonce of 12 bytes and AES-256-GCM of grant_json with key(\"grant\"). mac = HMAC-SHA256 with key(\"answer\") of fields(job, relay key, executor key, url, instance_id). " +
	"Keys without _hex are unpadded base64url."

// fixed returns a key pair of 32 equal bytes.
func fixed(t *testing.T, b byte) *ecdh.PrivateKey {
	t.Helper()
	private, err := ecdh.X25519().NewPrivateKey(bytes.Repeat([]byte{b}, keyBytes))
	must(t, err)
	return private
}

const fixedJob = "000102030405060708090a0b0c0d0e0f"

// fixedPair returns both sides with fixed keys.
func fixedPair(t *testing.T) (*Offer, *Response) {
	t.Helper()
	relay, executor := fixed(t, 1), fixed(t, 2)
	r, err := newResponse(fixedJob, executor, relay.PublicKey())
	must(t, err)
	return &Offer{job: fixedJob, made: r.made, private: relay}, r
}

func TestVectors(t *testing.T) {
	o, r := fixedPair(t)
	if *update {
		writeVectors(t, o, r)
		o, r = fixedPair(t)
	}
	raw, err := os.ReadFile(vectorsFile)
	must(t, err)
	var want vectors
	must(t, json.Unmarshal(raw, &want))
	grant, err := r.Open(want.Sealed)
	must(t, err)
	if _, err := o.Seal(r.PublicKey(), grant); err != nil {
		t.Fatal(err)
	}
	got := observed(t, o, r, grant)
	got.Sealed = want.Sealed
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if err := o.Check(want.Answer); err != nil {
		t.Error(err)
	}
}

func observed(t *testing.T, o *Offer, r *Response, g Grant) vectors {
	t.Helper()
	grant, err := json.Marshal(wireGrant(g))
	must(t, err)
	a, err := r.Answer("https://a.example", "an-instance")
	must(t, err)
	shared, err := o.private.ECDH(fixed(t, 2).PublicKey())
	must(t, err)
	grantKey, answerKey := independent(t, shared, labelGrant, o, r), independent(t, shared, labelAnswer, o, r)
	return vectors{
		How: how, Job: o.JobID(),
		RelayPrivate: hex.EncodeToString(o.private.Bytes()), RelayKey: o.PublicKey(),
		ExecutorPrivate: hex.EncodeToString(fixed(t, 2).Bytes()), ExecutorKey: r.PublicKey(),
		GrantKey: hex.EncodeToString(grantKey), AnswerKey: hex.EncodeToString(answerKey), Grant: string(grant), Answer: a,
	}
}

func writeVectors(t *testing.T, o *Offer, r *Response) {
	t.Helper()
	g := Grant{Secret: "the secret of the vectors, 32 or more", Tunnel: "ngrok", NgrokToken: "a token", Domain: "a.ngrok.app"}
	sealed, err := o.Seal(r.PublicKey(), g)
	if err == nil {
		_, err = r.Open(sealed)
	}
	must(t, err)
	v := observed(t, o, r, g)
	v.Sealed = sealed
	text, err := json.MarshalIndent(v, "", "  ")
	must(t, err)
	must(t, os.WriteFile(vectorsFile, append(text, '\n'), 0o644))
}

// independent derives a key by RFC 5869's own steps, without the code under test.
func independent(t *testing.T, shared []byte, label string, o *Offer, r *Response) []byte {
	t.Helper()
	mac := func(key []byte, parts ...[]byte) []byte {
		h := hmac.New(sha256.New, key)
		for _, part := range parts {
			h.Write(part)
		}
		return h.Sum(nil)
	}
	var info []byte
	for _, field := range [][]byte{[]byte(label), []byte(o.JobID()), o.private.PublicKey().Bytes(), r.public} {
		info = append(append(info, 0, 0, 0, byte(len(field))), field...)
	}
	prk := mac([]byte("colab-relay enrol v1"), shared)
	return mac(prk, info, []byte{1})
}
