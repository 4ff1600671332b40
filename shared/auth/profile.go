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
// a request of any other method also names the executor that it is intended for
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
// exactly, in this order. A reader writes the header again from the values that it found and
// compares the two, so that nothing can be added, omitted or written in two ways. The
// method determines the form of a request; a request in the other form is unauthorized. The
// lists of requests and answers start differently, so a signature of one direction is never
// valid in the other, although both use the same key. Host is not covered, because tunnels
// rewrite it.
//
// A GET changes nothing, so it does not name an executor. A captured GET is limited by its
// time and nonce, and after a restart, when the nonces are lost, by its time alone. All
// other requests are bound to one process by the start id.
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

// Limits of the headers, checked before anything else. The headers of the profile are
// about 230, 53, 55 and 63 bytes long.
const (
	maxInputBytes     = 512
	maxSignatureBytes = 128
	maxDigestBytes    = 128
	maxInstanceBytes  = 2*contract.MaxInstancePart + len("/")
)

// errForm is a signature that is not written exactly as the profile requires. Callers get
// ErrUnauthorized or ErrBadSignature instead.
var errForm = errors.New("signature does not have the form of the profile")

// parameters are the variable values in Signature-Input.
type parameters struct {
	created int64  // unix seconds
	nonce   string // requests only
	keyID   string
}

// signature is the content of a message's two signature headers.
type signature struct {
	parameters
	mac []byte
}

// listOf makes the list of covered components and parameters of one kind of message.
type listOf func(parameters) httpsfv.InnerList

// requestList makes the lists of requests with a method.
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

// readSignature reads the two signature headers. It fails with errForm unless they are
// written exactly as list writes them.
func readSignature(h http.Header, list listOf) (signature, error) {
	input, ok := single(h, HeaderSignatureInput, maxInputBytes)
	if !ok {
		return signature{}, errForm
	}
	p, err := readParameters(input)
	if err != nil {
		return signature{}, err
	}
	if want, err := httpsfv.Marshal(list(p)); err != nil || label+"="+want != input {
		return signature{}, errForm
	}
	mac, err := readMAC(h)
	return signature{p, mac}, err
}

func readParameters(input string) (parameters, error) {
	dictionary, err := httpsfv.UnmarshalDictionary([]string{input})
	if err != nil {
		return parameters{}, errForm
	}
	member, _ := dictionary.Get(label)
	list, ok := member.(httpsfv.InnerList)
	if !ok {
		return parameters{}, errForm
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
		return nil, errForm
	}
	dictionary, err := httpsfv.UnmarshalDictionary([]string{field})
	if err != nil {
		return nil, errForm
	}
	member, _ := dictionary.Get(label)
	item, _ := member.(httpsfv.Item)
	mac, _ := item.Value.([]byte)
	if writeMAC(mac) != field {
		return nil, errForm
	}
	return mac, nil
}

func writeMAC(mac []byte) string {
	return label + "=:" + base64.StdEncoding.EncodeToString(mac) + ":"
}

// single is the value of a header that must occur exactly once, with at most max bytes.
func single(h http.Header, name string, max int) (string, bool) {
	values := h[name]
	if len(values) != 1 || len(values[0]) > max {
		return "", false
	}
	return values[0], true
}

// sign signs the components of m in list, adds the signature headers to h and returns the
// value of Signature.
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
