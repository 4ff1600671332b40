package auth

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"github.com/dunglas/httpsfv"
	"github.com/google/go-cmp/cmp"
)

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
	secret := secretOf(string(raw))
	req := readRequest(t, rfcRequest)
	params := httpsfv.NewParams()
	params.Add("created", int64(1618884473))
	params.Add("keyid", "test-shared-secret")
	list := httpsfv.InnerList{
		Items:  []httpsfv.Item{httpsfv.NewItem("date"), httpsfv.NewItem("@authority"), httpsfv.NewItem("content-type")},
		Params: params,
	}

	base, err := signatureBase(list, requestMessage(req))
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
	if got := base64.StdEncoding.EncodeToString(secret.mac(base)); got != wantMAC {
		t.Errorf("signature %s, want %s", got, wantMAC)
	}
}

func TestComponents(t *testing.T) {
	req := readRequest(t, "GET /a%2Fb/c HTTP/1.1\r\nHost: Example.COM:8080\r\nX-Two:  one \r\nX-Two: two\r\nX-Dict: a=1, b=2;x=1;y=2, c=(a   b   c)\r\n\r\n")
	request := requestMessage(req)
	response := &message{status: 503, header: http.Header{"X-Own": {"own"}}, request: request}
	cases := map[string]struct {
		item httpsfv.Item
		from *message
		want string // empty: an error
	}{
		"method":                {item(`"@method"`), request, "GET"},
		"path remains escaped":  {item(`"@path"`), request, "/a%2Fb/c"},
		"empty query":           {item(`"@query"`), request, "?"},
		"authority lower case":  {item(`"@authority"`), request, "example.com:8080"},
		"status":                {item(`"@status"`), response, "503"},
		"fields are joined":     {item(`"x-two"`), request, "one, two"},
		"dictionary item":       {item(`"x-dict";key="b"`), request, "2;x=1;y=2"},
		"dictionary inner list": {item(`"x-dict";key="c"`), request, "(a b c)"},
		"of the request":        {item(`"x-two";req`), response, "one, two"},
		"member of the request": {item(`"x-dict";req;key="a"`), response, "1"},
		"own field":             {item(`"x-own"`), response, "own"},
		"missing field":         {item(`"x-none"`), request, ""},
		"missing member":        {item(`"x-dict";key="z"`), request, ""},
		"key is no string":      {item(`"x-dict";key=1`), request, ""},
		"req in a request":      {item(`"x-two";req`), request, ""},
		"unknown derived":       {item(`"@target-uri"`), request, ""},
		"unknown parameter":     {item(`"x-two";bs`), request, ""},
		"name is no string":     {item(`1`), request, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := c.from.component(c.item)
			if got != c.want || (err == nil) == (c.want == "") {
				t.Errorf("got %q, %v; want %q", got, err, c.want)
			}
		})
	}
}

func item(text string) httpsfv.Item {
	parsed, err := httpsfv.UnmarshalItem([]string{text})
	if err != nil {
		panic(err)
	}
	return parsed
}

func TestEmptyPathIsSlash(t *testing.T) {
	req, err := http.NewRequest("", "http://example.com?a=1", strings.NewReader(""))
	if err != nil {
		t.Fatal(err)
	}
	req.Method = ""
	m := requestMessage(req)
	if diff := cmp.Diff([]string{"GET", "/", "?a=1"}, []string{m.method, m.path, m.query}); diff != "" {
		t.Error(diff)
	}
}
