package auth

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"
)

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
