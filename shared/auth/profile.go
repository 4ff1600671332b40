package auth

import (
	"encoding/base64"
	"errors"
	"net/http"

	"github.com/dunglas/httpsfv"

	"colabrelay/shared/contract"
)

// The profile. A GET carries
//
//	Content-Digest: sha-256=:…:
//	Signature-Input: sig1=("@method" "@path" "@query" "content-digest");created=…;nonce="…";keyid="…";alg="hmac-sha256";tag="colab-relay"
//	Signature: sig1=:…:
//
// a request of any other method also names the executor it is meant for
//
//	Content-Digest: sha-256=:…:
//	Executor-Instance: <instance id>/<start id>
//	Signature-Input: sig1=("@method" "@path" "@query" "executor-instance" "content-digest");created=…;nonce="…";keyid="…";alg="hmac-sha256";tag="colab-relay"
//	Signature: sig1=:…:
//
// and the answer to either carries
//
//	Content-Digest: sha-256=:…:
//	Executor-Instance: <instance id>/<start id>
//	Signature-Input: sig1=("@status" "content-digest" "executor-instance" "signature";req;key="sig1");created=…;keyid="…";alg="hmac-sha256";tag="colab-relay"
//	Signature: sig1=:…:
//
// to the letter, in this order: whoever reads one writes it anew from the values
// it found and compares, so nothing can be added, left out or said in two ways. The
// method decides which form a request has; in the other form it is unauthorized.
// A request's list never begins like an answer's, so a signature of one direction
// never holds in the other although both use one key. Host is not covered: tunnels
// rewrite it.
//
// A GET changes nothing, so it needs no executor: what a captured one can do is bounded
// by its time and nonce, and after a restart, which forgets the nonces, by its time
// alone. Everything else is bound to one process by the start id.
const (
	label     = "sig1"
	algorithm = "hmac-sha256"
	tag       = "colab-relay"
)

// Header names of RFC 9421 and RFC 9530, in Go's canonical form.
const (
	HeaderSignatureInput = "Signature-Input"
	HeaderSignature      = "Signature"
	HeaderContentDigest  = "Content-Digest"
)

// Bounds of the headers, looked at before anything else is. The profile's own are
// about 230, 53, 55 and 63 bytes long.
const (
	maxInputBytes     = 512
	maxSignatureBytes = 128
	maxDigestBytes    = 128
	maxInstanceBytes  = 2*contract.MaxInstancePart + len("/")
)

// errShape is a signature that is not written as the profile says. It stays inside:
// callers see ErrUnauthorized or ErrBadSignature.
var errShape = errors.New("signature is not of this profile")

// parameters are the values in Signature-Input that are not fixed.
type parameters struct {
	created int64  // unix seconds
	nonce   string // requests only
	keyID   string
}

// signature is what the two signature headers of a message say.
type signature struct {
	parameters
	mac []byte
}

// listOf writes the covered components and parameters of one direction.
type listOf func(parameters) httpsfv.InnerList

// requestList is the form of requests of a method.
func requestList(method string) listOf {
	if method == http.MethodGet {
		return getList
	}
	return changeList
}

func getList(p parameters) httpsfv.InnerList {
	return ofRequest(p, "@method", "@path", "@query", "content-digest")
}

func changeList(p parameters) httpsfv.InnerList {
	return ofRequest(p, "@method", "@path", "@query", "executor-instance", "content-digest")
}

func ofRequest(p parameters, components ...string) httpsfv.InnerList {
	items := make([]httpsfv.Item, len(components))
	for i, name := range components {
		items[i] = httpsfv.NewItem(name)
	}
	params := httpsfv.NewParams()
	params.Add("created", p.created)
	params.Add("nonce", p.nonce)
	return httpsfv.InnerList{Items: items, Params: fixed(params, p.keyID)}
}

func responseList(p parameters) httpsfv.InnerList {
	asked := httpsfv.NewItem("signature")
	asked.Params.Add("req", true)
	asked.Params.Add("key", label)
	items := []httpsfv.Item{
		httpsfv.NewItem("@status"), httpsfv.NewItem("content-digest"), httpsfv.NewItem("executor-instance"), asked,
	}
	params := httpsfv.NewParams()
	params.Add("created", p.created)
	return httpsfv.InnerList{Items: items, Params: fixed(params, p.keyID)}
}

func fixed(params *httpsfv.Params, keyID string) *httpsfv.Params {
	params.Add("keyid", keyID)
	params.Add("alg", algorithm)
	params.Add("tag", tag)
	return params
}

// readSignature reads the two signature headers and refuses with errShape whatever
// list would not have written exactly so.
func readSignature(h http.Header, list listOf) (signature, error) {
	input, ok := single(h, HeaderSignatureInput, maxInputBytes)
	if !ok {
		return signature{}, errShape
	}
	p, err := readParameters(input)
	if err != nil {
		return signature{}, err
	}
	if wanted, err := httpsfv.Marshal(list(p)); err != nil || label+"="+wanted != input {
		return signature{}, errShape
	}
	mac, err := readMAC(h)
	return signature{p, mac}, err
}

func readParameters(input string) (parameters, error) {
	dictionary, err := httpsfv.UnmarshalDictionary([]string{input})
	if err != nil {
		return parameters{}, errShape
	}
	member, _ := dictionary.Get(label)
	list, ok := member.(httpsfv.InnerList)
	if !ok {
		return parameters{}, errShape
	}
	var p parameters
	p.created, _ = param[int64](list.Params, "created")
	p.nonce, _ = param[string](list.Params, "nonce")
	p.keyID, _ = param[string](list.Params, "keyid")
	return p, nil
}

func param[T any](params *httpsfv.Params, name string) (T, bool) {
	value, _ := params.Get(name)
	typed, ok := value.(T)
	return typed, ok
}

func readMAC(h http.Header) ([]byte, error) {
	field, ok := single(h, HeaderSignature, maxSignatureBytes)
	if !ok {
		return nil, errShape
	}
	dictionary, err := httpsfv.UnmarshalDictionary([]string{field})
	if err != nil {
		return nil, errShape
	}
	member, _ := dictionary.Get(label)
	item, _ := member.(httpsfv.Item)
	mac, _ := item.Value.([]byte)
	if writeMAC(mac) != field {
		return nil, errShape
	}
	return mac, nil
}

func writeMAC(mac []byte) string {
	return label + "=:" + base64.StdEncoding.EncodeToString(mac) + ":"
}

// single is the value of a header that is there exactly once and within max bytes.
func single(h http.Header, name string, max int) (string, bool) {
	values := h[name]
	if len(values) != 1 || len(values[0]) > max {
		return "", false
	}
	return values[0], true
}

// sign adds the signature list describes over m to h and returns the value of the
// Signature header.
func (s Secret) sign(h http.Header, list httpsfv.InnerList, m *message) (string, error) {
	base, err := signatureBase(list, m)
	if err != nil {
		return "", err
	}
	input, err := httpsfv.Marshal(list)
	if err != nil {
		return "", err
	}
	field := writeMAC(s.mac(base))
	h.Set(HeaderSignatureInput, label+"="+input)
	h.Set(HeaderSignature, field)
	return field, nil
}
