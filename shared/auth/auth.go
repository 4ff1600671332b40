// Package auth lets relay and executor verify that a message comes from the other one and
// is not a replay, and gives them the keys of its sealed query and body. It implements a
// strict HMAC-SHA256 profile of RFC 9421 (HTTP Message Signatures), the shared secret with
// its key schedule (RFC 5869), and the pairing string that carries the secret from the VM to
// the laptop.
//
// It must not log, print a secret, or read a body: shared/seal authenticates bodies. It does
// not deal with status codes and error bodies; its callers translate the errors below.
//
// Start reading at "The profile" below, which shows the complete signature headers, then at Exchange.
// Other implementations can test themselves with testdata/vectors.json.
package auth

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/seal"
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

// Exchange is one request and its answer. Both sides have one: a relay makes it with
// Signer.NewExchange, an executor gets it from Verifier.Verify. Its keys open only this
// request and this answer. It is for one goroutine at a time.
type Exchange struct {
	secret Secret
	caller Caller
	nonce  string
	mac    []byte // of the request; nil until it is signed
	answer []byte // the answer's MAC; nil until that is signed or verified
}

// Caller is the program that signed the request.
func (x *Exchange) Caller() Caller { return x.caller }

// QueryKey is the key of the request's query.
func (x *Exchange) QueryKey(method, path string) seal.Key {
	return x.secret.derive(labelQuery, method, path, x.nonce)
}

// BodyKey is the key of the request's body.
func (x *Exchange) BodyKey() seal.Key { return x.secret.derive(labelRequest, x.nonce) }

// AnswerKey is the key of the answer's body. The answer must have been signed or verified.
//
// A request that is repeated has several answers: that to the first copy and the refusals of
// the others. Each has its own key, so that the body of one does not open after the head of
// another.
func (x *Exchange) AnswerKey() seal.Key {
	if x.answer == nil {
		panic("auth: key of an answer that is neither signed nor verified")
	}
	return x.secret.derive(labelAnswer, string(x.answer))
}

// SignRequest adds Signature-Input and Signature to req, whose method, URL and
// Content-Encoding must not change afterwards. Unless it is a GET, its headers must contain
// Executor-Instance. An exchange signs one request: another attempt needs another one,
// because its nonce must be new.
func (x *Exchange) SignRequest(req *http.Request, created time.Time) error {
	p := parameters{created: created.Unix(), nonce: x.nonce, keyID: x.secret.KeyID()}
	return x.signRequest(req, p)
}

func (x *Exchange) signRequest(req *http.Request, p parameters) error {
	instance := req.Header.Get(contract.HeaderInstance)
	if _, err := instanceOf(req.Header); err != nil && methodOf(req) != http.MethodGet {
		return fmt.Errorf("signing a request: %w", err)
	}
	sealed, ok := encoded(req.Header)
	if !ok {
		return fmt.Errorf("signing a request: %s must be %q or absent", HeaderContentEncoding, Encoding)
	}
	params := p.write(requestComponents(methodOf(req), sealed))
	x.mac = x.secret.mac(requestBase(req, instance, sealed, params))
	setSignature(req.Header, params, x.mac)
	return nil
}

// SignAnswer adds Signature-Input and Signature to h, the headers of the answer with
// status. The request's MAC is covered, which binds the answer to the request. h must
// contain Executor-Instance, and Content-Encoding if the answer has a body.
func (x *Exchange) SignAnswer(h http.Header, status int, created time.Time) error {
	if _, err := instanceOf(h); err != nil {
		return fmt.Errorf("signing an answer: %w", err)
	}
	sealed, ok := encoded(h)
	if !ok {
		return fmt.Errorf("signing an answer: %s must be %q or absent", HeaderContentEncoding, Encoding)
	}
	params := parameters{created: created.Unix(), keyID: x.secret.KeyID()}.write(answerComponents(sealed))
	x.answer = x.secret.mac(answerBase(status, h.Get(contract.HeaderInstance), sealed, x.mac, params))
	setSignature(h, params, x.answer)
	return nil
}

// VerifyAnswer checks that res, without its body, is the executor's answer to the request
// of this exchange. The MAC of that request counts, not one that the answer contains. The
// time of the answer is not checked, because the answer is bound to a request with a new
// nonce. It fails with ErrUnsigned if a signature header is missing and with
// ErrBadSignature otherwise.
func (x *Exchange) VerifyAnswer(res *http.Response) error {
	if len(res.Header[HeaderSignature]) == 0 || len(res.Header[HeaderSignatureInput]) == 0 {
		return ErrUnsigned
	}
	// The form of the instance is not checked, because an executor of another release may use
	// another one, which is not a forgery.
	instance, once := single(res.Header, contract.HeaderInstance, maxInstanceBytes)
	sealed, ok := encoded(res.Header)
	if !once || !ok {
		return ErrBadSignature
	}
	components := answerComponents(sealed)
	claim, err := readSignature(res.Header, components, false)
	if err != nil {
		return ErrBadSignature
	}
	base := answerBase(res.StatusCode, instance, sealed, x.mac, claim.write(components))
	if !x.secret.verifies(claim, base) {
		return ErrBadSignature
	}
	x.answer = claim.mac
	return nil
}

// A nonce is unpadded base64url of at least 16 bytes. A Signer's nonces are its Caller
// followed by 16 random bytes. The form is not enforced: a holder of the key who uses
// another one affects only the fairness between the relays that share the key.
const (
	freshBytes    = 16
	minNonceChars = 22 // 16 bytes
	maxNonceChars = 128
)

// Caller identifies the program that signed a request. It is the first bytes of each of
// the program's nonces. Several relays on several computers may share one key, and the
// executor divides queue and rate between callers. The caller is signed, but any holder of
// the key can choose it, so it proves nothing.
type Caller [8]byte

// String is the caller in hex digits.
func (c Caller) String() string { return hex.EncodeToString(c[:]) }

// newNonce makes a nonce of caller c.
func (c Caller) newNonce() string {
	return base64.RawURLEncoding.EncodeToString(append(c[:len(c):len(c)], randomBytes(freshBytes)...))
}

// callerOf is the caller that made nonce. It returns false if nonce does not fit the profile.
func callerOf(nonce string) (Caller, bool) {
	if len(nonce) < minNonceChars || len(nonce) > maxNonceChars {
		return Caller{}, false
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(nonce)
	if err != nil {
		return Caller{}, false
	}
	return Caller(raw[:len(Caller{})]), true
}

// Signer starts exchanges for a relay. It is safe for concurrent use.
type Signer struct {
	secret Secret
	caller Caller
}

// NewSigner makes a signer for secret, which must not be zero, with a new Caller. A relay
// makes one signer for each executor when it starts.
func NewSigner(secret Secret) *Signer {
	if secret.IsZero() {
		panic("auth: signer without a secret")
	}
	return &Signer{secret: secret, caller: Caller(randomBytes(len(Caller{})))}
}

// NewExchange starts an exchange with a new nonce.
func (s *Signer) NewExchange() *Exchange {
	return &Exchange{secret: s.secret, caller: s.caller, nonce: s.caller.newNonce()}
}

// Verifier verifies requests for an executor. It is safe for concurrent use.
type Verifier struct {
	secret   Secret
	instance contract.Instance
	now      func() time.Time
	window   *window
}

// NewVerifier makes a verifier for secret, which must not be zero. Requests other than GET
// must name instance. now is the clock.
//
// A new verifier has no nonces. Requests other than GET that were signed for an earlier
// start are still refused, because they name that start.
func NewVerifier(secret Secret, instance contract.Instance, now func() time.Time) *Verifier {
	if secret.IsZero() || instance.IsZero() {
		panic("auth: verifier without a secret or an instance")
	}
	return &Verifier{secret: secret, instance: instance, now: now, window: newWindow()}
}

// Verify checks everything of req but its query and body, in this order: sizes and form of
// the signature headers, key_id and MAC (ErrUnauthorized for all of these), time
// (ErrClockSkew), instance and start unless it is a GET (ErrNewInstance, ErrNewStart), and
// nonce (ErrReplayed, ErrTooManyNonces). It stores only the nonces of valid requests. Query
// and body are authentic only if they open with the keys of the exchange. For every error but
// ErrUnauthorized there is an exchange too, because the caller is verified and the answer
// should be signed.
func (v *Verifier) Verify(req *http.Request) (*Exchange, error) {
	r, err := v.authenticate(req)
	if err != nil {
		return nil, err
	}
	now, created := v.now(), time.Unix(r.created, 0)
	switch {
	case now.Sub(created).Abs() > contract.ClockSkew:
		return r.exchange, ErrClockSkew
	case req.Method == http.MethodGet:
	case r.intended.ID != v.instance.ID:
		return r.exchange, ErrNewInstance
	case r.intended.Start != v.instance.Start:
		return r.exchange, ErrNewStart
	}
	return r.exchange, v.window.admit(r.exchange.nonce, created, now)
}

// authentic is the content of a request with a correct MAC.
type authentic struct {
	exchange *Exchange
	created  int64
	intended contract.Instance // zero for a GET
}

// authenticate checks the MAC. It fails with ErrUnauthorized.
func (v *Verifier) authenticate(req *http.Request) (r authentic, err error) {
	sealed, ok := encoded(req.Header)
	if !ok || len(req.URL.Path)+len(req.URL.RawQuery) > contract.MaxHeaderBytes {
		return r, ErrUnauthorized
	}
	if req.Method != http.MethodGet {
		if r.intended, err = instanceOf(req.Header); err != nil {
			return r, ErrUnauthorized
		}
	}
	components := requestComponents(req.Method, sealed)
	claim, err := readSignature(req.Header, components, true)
	if err != nil {
		return r, ErrUnauthorized
	}
	base := requestBase(req, req.Header.Get(contract.HeaderInstance), sealed, claim.write(components))
	caller, ok := callerOf(claim.nonce)
	if !ok || !v.secret.verifies(claim, base) {
		return r, ErrUnauthorized
	}
	r.exchange = &Exchange{secret: v.secret, caller: caller, nonce: claim.nonce, mac: claim.mac}
	r.created = claim.created
	return r, nil
}

// maxNonces limits the window to the 6,000 requests a minute that the rate limit allows,
// for the 15 minutes that the window covers at most. At about 40 bytes each that is
// less than 5 MB. Only holders of the key can fill the window.
const maxNonces = 6000 * 15

// nonceID is a hash of a nonce, so that nonces of any length take the same memory.
type nonceID [16]byte

// window stores the nonces of recent requests. They are removed by age only, once no request
// with them would pass the clock check. If nonces were removed by number, a flood could evict
// a nonce and then replay it.
type window struct {
	mu    sync.Mutex
	seen  map[nonceID]int64 // when the request was created, in unix seconds
	swept time.Time
}

func newWindow() *window { return &window{seen: map[nonceID]int64{}} }

// admit stores nonce. It fails with ErrReplayed if the window contains it already and with
// ErrTooManyNonces if the window is full. created must be within contract.ClockSkew of now.
func (w *window) admit(nonce string, created, now time.Time) error {
	sum := sha256.Sum256([]byte(nonce))
	id := nonceID(sum[:len(nonceID{})])

	w.mu.Lock()
	defer w.mu.Unlock()
	if now.Sub(w.swept).Abs() >= contract.ClockSkew {
		oldest := now.Add(-contract.ClockSkew).Unix()
		maps.DeleteFunc(w.seen, func(_ nonceID, created int64) bool { return created < oldest })
		w.swept = now
	}
	if _, used := w.seen[id]; used {
		return ErrReplayed
	}
	if len(w.seen) >= maxNonces {
		return ErrTooManyNonces
	}
	w.seen[id] = created.Unix()
	return nil
}

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
