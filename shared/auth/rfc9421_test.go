package auth

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/dunglas/httpsfv"
)

// A second implementation of RFC 9421, for any list of components, which the RFC's own
// example verifies. The profile's bases and headers are compared with it.

// The request of RFC 9421 appendix B.2 and the key of B.1.5.
const (
	rfcRequest = "POST /foo?param=Value&Pet=dog HTTP/1.1\r\nHost: example.com\r\n" +
		"Date: Tue, 20 Apr 2021 02:07:55 GMT\r\nContent-Type: application/json\r\n" +
		"Content-Length: 18\r\n\r\n{\"hello\": \"world\"}"
	rfcKey = "uzvJfB4u3N0Jy4T7NZ75MDVcr8zSTInedJtkgcu46YW4XByzNJjxBdtjUkdJPBtbmHhIDi6pcl8jsasjlTMtDQ=="
)

func TestRFC9421AppendixB25(t *testing.T) {
	raw, err := base64.StdEncoding.DecodeString(rfcKey)
	if err != nil {
		t.Fatal(err)
	}
	req := readRequest(t, rfcRequest)
	params := httpsfv.NewParams()
	params.Add("created", int64(1618884473))
	params.Add("keyid", "test-shared-secret")
	list := httpsfv.InnerList{
		Items:  []httpsfv.Item{httpsfv.NewItem("date"), httpsfv.NewItem("@authority"), httpsfv.NewItem("content-type")},
		Params: params,
	}

	base, err := referenceBase(list, messageOf(req))
	if err != nil {
		t.Fatal(err)
	}
	const wantBase = `"date": Tue, 20 Apr 2021 02:07:55 GMT
"@authority": example.com
"content-type": application/json
"@signature-params": ("date" "@authority" "content-type");created=1618884473;keyid="test-shared-secret"`
	if base != wantBase {
		t.Errorf("signature base:\n%s\nwant:\n%s", base, wantBase)
	}
	const wantMAC = "pxcQw6G3AjtMBQjwo8XzkZf/bws5LelbaMk5rGIGtE8="
	if got := base64.StdEncoding.EncodeToString(macOf(raw, base)); got != wantMAC {
		t.Errorf("signature %s, want %s", got, wantMAC)
	}
}

func macOf(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// message is what components are taken from (RFC 9421 section 2).
type message struct {
	method    string
	authority string
	path      string // escaped, as on the wire
	query     string // with its "?"
	status    int
	header    http.Header
	request   *message // the request that a response answers, for components marked ;req
}

// messageOf is the message of r. It is the same for a request to be sent and for the
// received request.
func messageOf(r *http.Request) *message {
	return &message{
		method:    cmp.Or(r.Method, http.MethodGet),
		authority: cmp.Or(r.Host, r.URL.Host),
		path:      cmp.Or(r.URL.EscapedPath(), "/"),
		query:     "?" + r.URL.RawQuery,
		header:    r.Header,
	}
}

// referenceBase is the signed text (RFC 9421 section 2.5): one line for each covered
// component, then the list of components with its parameters.
func referenceBase(list httpsfv.InnerList, m *message) (string, error) {
	var base strings.Builder
	for _, item := range list.Items {
		name, err := httpsfv.Marshal(item)
		if err != nil {
			return "", fmt.Errorf("writing a component's name: %w", err)
		}
		value, err := m.component(item)
		if err != nil {
			return "", fmt.Errorf("component %s: %w", name, err)
		}
		base.WriteString(name + ": " + value + "\n")
	}
	params, err := httpsfv.Marshal(list)
	if err != nil {
		return "", fmt.Errorf("writing signature parameters: %w", err)
	}
	base.WriteString(`"@signature-params": ` + params)
	return base.String(), nil
}

// component is the value of one covered component (RFC 9421 sections 2.1 to 2.4). It
// supports the parameters that the profile uses, req and key.
func (m *message) component(item httpsfv.Item) (string, error) {
	name, ok := item.Value.(string)
	if !ok {
		return "", fmt.Errorf("its name is not a string")
	}
	member := ""
	for _, param := range item.Params.Names() {
		value, _ := item.Params.Get(param)
		switch {
		case param == "req" && value == true && m.request != nil:
			m = m.request
		case param == "key":
			member, ok = value.(string)
			if !ok {
				return "", fmt.Errorf("parameter key is not a string")
			}
		default:
			return "", fmt.Errorf("parameter %q is not supported", param)
		}
	}
	switch {
	case strings.HasPrefix(name, "@"):
		return m.derived(name)
	case member != "":
		return m.member(name, member)
	}
	return m.field(name)
}

func (m *message) derived(name string) (string, error) {
	switch name {
	case "@method":
		return m.method, nil
	case "@authority":
		return strings.ToLower(m.authority), nil
	case "@path":
		return m.path, nil
	case "@query":
		return m.query, nil
	case "@status":
		return strconv.Itoa(m.status), nil
	}
	return "", fmt.Errorf("not supported")
}

// field is the value of a header. Several values are joined as section 2.1 requires.
func (m *message) field(name string) (string, error) {
	values := m.header.Values(name)
	if len(values) == 0 {
		return "", fmt.Errorf("header is missing")
	}
	trimmed := make([]string, len(values))
	for i, value := range values {
		trimmed[i] = strings.Trim(value, " \t")
	}
	return strings.Join(trimmed, ", "), nil
}

// member is one member of a dictionary header, serialised again (section 2.1.2).
func (m *message) member(name, key string) (string, error) {
	dictionary, err := httpsfv.UnmarshalDictionary(m.header.Values(name))
	if err != nil {
		return "", fmt.Errorf("reading the dictionary: %w", err)
	}
	value, ok := dictionary.Get(key)
	if !ok {
		return "", fmt.Errorf("the header has no member %q", key)
	}
	switch value := value.(type) {
	case httpsfv.Item:
		return httpsfv.Marshal(value)
	case httpsfv.InnerList:
		return httpsfv.Marshal(value)
	}
	return "", fmt.Errorf("member %q has an unsupported type", key)
}
