package auth

import (
	"cmp"
	"crypto/hmac"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"colabrelay/shared/contract"
)

// The profile. A GET carries
//
//	Signature-Input: sig1=("@method" "@path" "@query");created=…;nonce="…";keyid="…";alg="hmac-sha256";tag="colab-relay"
//	Signature: sig1=:…:
//
// a request of any other method also names the executor that it is intended for
//
//	Executor-Instance: <instance id>/<start id>
//	Signature-Input: sig1=("@method" "@path" "@query" "executor-instance");created=…;nonce="…";keyid="…";alg="hmac-sha256";tag="colab-relay"
//	Signature: sig1=:…:
//
// and the answer to either carries
//
//	Executor-Instance: <instance id>/<start id>
//	Signature-Input: sig1=("@status" "executor-instance" "signature";req;key="sig1");created=…;keyid="…";alg="hmac-sha256";tag="colab-relay"
//	Signature: sig1=:…:
//
// exactly, in this order. A message with a body also carries
//
//	Content-Encoding: aes128gcm
//
// and covers "content-encoding" after the components above, in an answer before
// "signature". There is no Content-Digest, because the records of a sealed body authenticate
// it. A reader refuses whatever a writer of this package would write in another way, so that
// nothing can be added, omitted or written in two ways. Method and Content-Encoding
// determine the form of a request; a request in another form is unauthorized. The lists of
// requests and answers start differently, so a signature of one direction is never valid in
// the other, although both use the same key. Host is not covered, because tunnels rewrite it.
//
// A GET changes nothing, so it does not name an executor. A captured GET is limited by its
// time and nonce, and after a restart, when the nonces are lost, by its time alone. All
// other requests are bound to one process by the start id.
const (
	label  = "sig1"
	suffix = `;alg="hmac-sha256";tag="colab-relay"`

	nameInstance = ` "executor-instance"`
	nameEncoding = ` "content-encoding"`
)

// Header names of RFC 9421 and of RFC 9110, in Go's canonical form, and the coding of RFC 8188.
const (
	HeaderSignatureInput  = "Signature-Input"
	HeaderSignature       = "Signature"
	HeaderContentEncoding = "Content-Encoding"
	Encoding              = "aes128gcm"
)

// Limits of the headers, checked before anything else. The headers of the profile are
// about 230, 53 and 63 bytes long.
const (
	maxInputBytes    = 512
	maxInstanceBytes = 2*contract.MaxInstancePart + len("/")
)

// macBytes is the size of a MAC.
const macBytes = 32

// errForm is a signature that is not written exactly as the profile requires. Callers get
// ErrUnauthorized or ErrBadSignature instead.
var errForm = errors.New("signature does not have the form of the profile")

// A signature base (RFC 9421 section 2.5) has one line for each covered component, then the
// list of components with its parameters. Callers have checked that the covered headers
// occur once, so their values need no joining.

// requestBase is the signature base of a request. It is the same for a request to be sent
// and for the received request.
func requestBase(r *http.Request, instance string, sealed bool, params string) string {
	var b strings.Builder
	b.Grow(512 + len(r.URL.RawQuery))
	b.WriteString(`"@method": `)
	b.WriteString(methodOf(r))
	b.WriteString("\n\"@path\": ")
	b.WriteString(pathOf(r))
	b.WriteString("\n\"@query\": ?")
	b.WriteString(r.URL.RawQuery)
	if methodOf(r) != http.MethodGet {
		b.WriteString("\n\"executor-instance\": ")
		b.WriteString(strings.Trim(instance, " \t"))
	}
	writeTail(&b, sealed, "", params)
	return b.String()
}

// answerBase is the signature base of the answer to the request with the MAC asked.
func answerBase(status int, instance string, sealed bool, asked []byte, params string) string {
	var b strings.Builder
	b.Grow(512)
	b.WriteString(`"@status": `)
	b.WriteString(strconv.Itoa(status))
	b.WriteString("\n\"executor-instance\": ")
	b.WriteString(strings.Trim(instance, " \t"))
	writeTail(&b, sealed, "\n\"signature\";req;key=\"sig1\": "+strings.TrimPrefix(writeMAC(asked), label+"="), params)
	return b.String()
}

func writeTail(b *strings.Builder, sealed bool, asked, params string) {
	if sealed {
		b.WriteString("\n\"content-encoding\": " + Encoding)
	}
	b.WriteString(asked)
	b.WriteString("\n\"@signature-params\": ")
	b.WriteString(params)
}

func methodOf(r *http.Request) string { return cmp.Or(r.Method, http.MethodGet) }

// pathOf is the path as on the wire, escaped.
func pathOf(r *http.Request) string { return cmp.Or(r.URL.EscapedPath(), "/") }

func setSignature(h http.Header, params string, mac []byte) {
	h[HeaderSignatureInput] = []string{label + "=" + params}
	h[HeaderSignature] = []string{writeMAC(mac)}
}

// verifies reports whether claim is the signature of base with this key. It computes the MAC
// and compares it in constant time whatever the key_id is, so that the time does not reveal
// the cause of a failure.
func (s Secret) verifies(claim signature, base string) bool {
	rightKey := hmac.Equal([]byte(claim.keyID), []byte(s.KeyID()))
	rightMAC := hmac.Equal(claim.mac, s.mac(base))
	return rightKey && rightMAC
}

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

// encoded reports whether h announces a sealed body. It returns false for ok unless
// Content-Encoding is absent or exactly that of the profile.
func encoded(h http.Header) (sealed, ok bool) {
	values := h[HeaderContentEncoding]
	return len(values) > 0, len(values) == 0 || len(values) == 1 && values[0] == Encoding
}

// requestComponents is the list of the components that a request covers.
func requestComponents(method string, sealed bool) string {
	list := `("@method" "@path" "@query"`
	if method != http.MethodGet {
		list += nameInstance
	}
	if sealed {
		list += nameEncoding
	}
	return list + ")"
}

// answerComponents is the list of the components that an answer covers.
func answerComponents(sealed bool) string {
	if sealed {
		return `("@status"` + nameInstance + nameEncoding + ` "signature";req;key="sig1")`
	}
	return `("@status"` + nameInstance + ` "signature";req;key="sig1")`
}

// write is the list with its parameters, as in Signature-Input and as the last line of the
// signature base.
func (p parameters) write(components string) string {
	text := components + ";created=" + strconv.FormatInt(p.created, 10)
	if p.nonce != "" {
		text += `;nonce="` + p.nonce + `"`
	}
	return text + `;keyid="` + p.keyID + `"` + suffix
}

// readSignature reads the two signature headers of a message that covers components. It
// fails with errForm unless they are written exactly as this package writes them.
func readSignature(h http.Header, components string, withNonce bool) (signature, error) {
	input, ok := single(h, HeaderSignatureInput, maxInputBytes)
	if !ok {
		return signature{}, errForm
	}
	p, ok := readParameters(strings.TrimPrefix(input, label+"="+components), withNonce)
	if !ok || label+"="+p.write(components) != input {
		return signature{}, errForm
	}
	mac, err := readMAC(h)
	return signature{p, mac}, err
}

// readParameters reads the values of the parameters. It reads some forms that are not
// exact; the caller writes the parameters again and compares.
func readParameters(text string, withNonce bool) (p parameters, ok bool) {
	created, rest, _ := strings.Cut(strings.TrimPrefix(text, ";created="), ";")
	p.created, _ = strconv.ParseInt(created, 10, 64)
	if withNonce {
		p.nonce, rest, _ = strings.Cut(strings.TrimPrefix(rest, `nonce="`), `";`)
	}
	p.keyID, _, _ = strings.Cut(strings.TrimPrefix(rest, `keyid="`), `"`)
	return p, plainString(p.nonce) && plainString(p.keyID) && withNonce == (p.nonce != "")
}

// plainString reports whether text can be a nonce or a key_id, which need no escaping in a
// string of RFC 8941.
func plainString(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

const (
	macPrefix = label + "=:"
	macSuffix = ":"
)

// readMAC reads the value of Signature: exactly one MAC.
func readMAC(h http.Header) ([]byte, error) {
	size := len(macPrefix) + base64.StdEncoding.EncodedLen(macBytes) + len(macSuffix)
	field, ok := single(h, HeaderSignature, size)
	if !ok || len(field) != size || !strings.HasPrefix(field, macPrefix) || !strings.HasSuffix(field, macSuffix) {
		return nil, errForm
	}
	mac, err := base64.StdEncoding.Strict().DecodeString(field[len(macPrefix) : size-len(macSuffix)])
	if err != nil || len(mac) != macBytes {
		return nil, errForm
	}
	return mac, nil
}

func writeMAC(mac []byte) string {
	return macPrefix + base64.StdEncoding.EncodeToString(mac) + macSuffix
}

// single is the value of a header that must occur exactly once, with at most max bytes.
func single(h http.Header, name string, max int) (string, bool) {
	values := h[name]
	if len(values) != 1 || len(values[0]) > max {
		return "", false
	}
	return values[0], true
}

// instanceOf reads Executor-Instance, which must occur once in h.
func instanceOf(h http.Header) (contract.Instance, error) {
	text, ok := single(h, contract.HeaderInstance, maxInstanceBytes)
	if !ok {
		return contract.Instance{}, fmt.Errorf("the message must have one %s of at most %d bytes", contract.HeaderInstance, maxInstanceBytes)
	}
	return contract.ParseInstance(text)
}
