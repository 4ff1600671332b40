package attack

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Strangers send whatever they like. Only GET and HEAD /health are answered with more than a
// refusal. 400, 431, 501 and 505 are net/http's own refusals.
func TestHostileMessagesOfStrangers(t *testing.T) {
	s := newStand(t)
	tables := map[string][]attack{
		"request lines": requestLines(), "targets": targets(), "headers": headers(), "lengths": lengths(), "chunks": chunks(), "pipelines": pipelines(),
	}
	n := 0
	for _, kind := range slices.Sorted(maps.Keys(tables)) {
		for _, a := range tables[kind] {
			if n++; n%25 == 0 {
				s.workHonestly()
			}
			name := kind + ": " + a.name
			got := deliver(t, s.address, n, a.raw)
			if !regexp.MustCompile("^(" + a.want + ")$").MatchString(got.statuses) {
				t.Errorf("%s: answered %s, want %s", name, got.statuses, a.want)
			}
			wantNothingLearned(t, name, got)
		}
		t.Logf("%s: %d cases", kind, len(tables[kind]))
	}
	t.Logf("%d cases", n)
	s.end([]int{})
}

const end = "\r\nHost: x\r\n\r\n"

// requestLines are methods and versions.
func requestLines() []attack {
	return []attack{
		{"no request", "", "-"},
		{"empty lines", strings.Repeat("\r\n", 1000), "400"},
		{"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("\x00", 506), "400"},
		{"PROXY protocol", "PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\nGET /health HTTP/1.1" + end, "400"},
		{"HTTP/1.0", "GET /v1/kernel HTTP/1.0\r\n\r\n", "401"},
		{"HTTP/1.0 health", "GET /health HTTP/1.0\r\n\r\n", "200"},
		{"HTTP/2.0", "GET /health HTTP/2.0" + end, "505"},
		{"a NUL in the line", "GET /health\x00 HTTP/1.1" + end, "400"},
		{"bare LF", "GET /v1/kernel HTTP/1.1\nHost: x\n\n", "401"},
		{"HTTP/2 with prior knowledge", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", "401"},
		{"get", "get /health HTTP/1.1" + end, "401"},
		{"a method without an end", strings.Repeat("M", 1<<20), "431"},
		method("HEAD", "/v1/kernel"), method("POST", "/health"), method("DELETE", "/health"), method("OPTIONS", "*"), method("OPTIONS", "/v1/executions"),
		method("TRACE", "/v1/executions"), method("CONNECT", "127.0.0.1:22"), method("CONNECT", "/health"), method("PROPFIND", "/"),
	}
}

func method(name, target string) attack {
	return attack{name + " " + target, name + " " + target + " HTTP/1.1\r\nHost: x\r\nX-Mark: " + mark + end[len("\r\nHost: x"):], "401"}
}

// targets are ways to write a path, most of which some program takes for /health or a file.
func targets() []attack {
	var all []attack
	for target, want := range map[string]string{
		"/": "401", "*": "401", "?": "400", "health": "400", "/health/": "401", "//health": "401", "/x/../health": "401", "/HEALTH": "401", "/health%00": "401",
		"/health%2f": "401", "/health;x": "401", "/%68ealth": "200", "/%2e%2e/health": "401", "/health?path=/etc/passwd": "200", "/health#x": "401",
		"http://x/health": "200", "http://169.254.169.254/latest/meta-data": "401", "http://x/v1/kernel": "401", "file:///etc/passwd": "401", "//x/v1/kernel": "401",
		"/v1/../health": "401", "/v1//kernel": "401", "/v1/%6bernel": "401", "/v1/kernel%zz": "400", "/v1/executions/..%2f..%2fetc%2fpasswd": "401",
		"/v1/executions/\xff\xfe": "401", "/v1/files?path=../../etc/passwd": "401", "/v1/files?s=" + strings.Repeat("A", 8000): "401",
		"/.colab-relay/instance.json": "401", "/debug/pprof/": "401", "/" + strings.Repeat("a", 15_000): "401", "/" + strings.Repeat("a", 17_000): "431",
		"/x?" + strings.Repeat("a=b&", 5_000): "431", "/v1/kernel\x7f": "400", "/v1 /kernel": "400", "/v1/kernel?\x00": "400",
	} {
		all = append(all, attack{"target " + clip(target), "GET " + target + " HTTP/1.1" + end, want})
	}
	return all
}

func clip(text string) string { return text[:min(len(text), 50)] }

// message is a request with headers, each line without its end.
func message(method, target string, lines ...string) string {
	return method + " " + target + " HTTP/1.1\r\nHost: x\r\n" + strings.Join(append(lines, "", ""), "\r\n")
}

// smuggled is a second request that hides in the body of the first. If it is answered, the
// executor and a proxy in front of it can disagree where a request ends.
const smuggled = "GET /health HTTP/1.1\r\nHost: x\r\nX-Mark: " + mark + "\r\n\r\n"

// headers are header fields of one request to a path that is not open.
func headers() []attack {
	all := []attack{
		{"no Host", "GET /v1/kernel HTTP/1.1\r\n\r\n", "400"},
		{"two Hosts", "GET /v1/kernel HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "400"},
		{"a Host with a path", "GET /v1/kernel HTTP/1.1\r\nHost: x/../y\r\n\r\n", "400"},
		{"a folded first line", "GET /v1/kernel HTTP/1.1\r\n Host: x\r\n\r\n", "400"},
		{"a header cut", "GET /v1/kernel HTTP/1.1\r\nHost: x\r\nSigna", "400"},
		{"10,000 headers", message("GET", "/v1/kernel", strings.Repeat("A: b\r\n", 10_000)+"C: d"), "431"},
		{"a value of 1 MB", message("GET", "/v1/kernel", "A: "+strings.Repeat("b", 1<<20)), "431"},
		{"300 KB of folds", message("GET", "/v1/kernel", "A: b", strings.Repeat(" c\r\n", 100_000)+" d"), "431"},
	}
	for line, want := range map[string]string{
		"A : b": "400", ": b": "400", "A": "400", "A\x00: b": "400", "A: \x00": "400", "A: b\rC: d": "400", "A: b\r\r\nC: d": "400", "A: b\nC: d": "401",
		"A: b\n\nGET /health HTTP/1.1": "401", "A: \xff\xfe": "401", "A: b\r\n c": "401", "A: b\r\n": "401",
		"Expect: 100-continue": "401", "Expect: 200-ok": "417",
		"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==": "401",
		"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA":                       "401",
		"Connection: Signature": "401", "X-HTTP-Method-Override: POST": "401", "X-Original-URL: /health": "401", "X-Forwarded-For: 127.0.0.1": "401",
		"Forwarded: for=127.0.0.1;proto=https": "401", "Authorization: Bearer " + secret: "401", "Cookie: secret=" + secret: "401",
		"Origin: https://colab.research.google.com": "401", "Range: bytes=" + strings.Repeat("0-,", 4_000): "401", "Trailer: Signature": "401",
		"Content-Encoding: aes128gcm": "401", "Signature: sig1=:AAAA:": "401", "Signature-Input: sig1=()": "401", "Signature: " + strings.Repeat("x", 9_000): "401",
		"Executor-Instance: ../../x": "401", "X-Request-Id: " + mark: "401",
	} {
		all = append(all, attack{clip(fmt.Sprintf("%q", line)), message("GET", "/v1/kernel", line), want})
	}
	return all
}

// lengths are bodies whose length is announced in two ways, or wrongly. No second request may
// be answered after them.
func lengths() []attack {
	var all []attack
	for line, want := range map[string]string{
		"Content-Length: 10": "401", "Content-Length: 9223372036854775807": "401", "Content-Length: 9223372036854775808": "400", "Content-Length: -1": "400", "Content-Length: +5": "400",
		"Content-Length: 0x10": "400", "Content-Length: 5, 6": "400", "Content-Length: 5;x": "400", "Content-Length:": "400", "Content-Length: 000000000000000000005": "401",
		"Content-Length: 5\r\nContent-Length: 5": "401", "Content-Length: 5\r\nContent-Length: 6": "400", "Content-Length: 0\r\nContent-Length: " + fmt.Sprint(len(smuggled)): "400",
		"Content-Length : 5": "400", "Content_Length: 5": "401", "Content-Length: 5\r\nTransfer-Encoding: chunked": "401", "Transfer-Encoding: chunked\r\nContent-Length: x": "400",
		"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity": "501", "Transfer-Encoding: gzip, chunked": "501", "Transfer-Encoding: \x0bchunked": "400", "Transfer-Encoding: chunked;x=y": "501",
		"Transfer-Encoding: CHUNKED\r\nContent-Length: 0": "401", "Transfer-Encoding : chunked\r\nContent-Length: 5": "400", "Transfer-Encoding:\r\n chunked\r\nContent-Length: 5": "401",
		"X: y\nTransfer-Encoding: chunked\r\nContent-Length: 5": "401", "Transfer-Encoding: chunked\r\nConnection: Transfer-Encoding": "401", "Content-Length: 3\r\nExpect: 100-continue": "(100 )?401",
	} {
		for _, verb := range []string{"POST", "GET"} {
			all = append(all, attack{verb + " " + clip(fmt.Sprintf("%q", line)), message(verb, "/v1/executions", "Connection: keep-alive", line) + "0\r\n\r\n" + smuggled, want})
		}
	}
	all = append(all,
		attack{"HTTP/1.0 with chunks", "POST /v1/executions HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled, "401"},
		attack{"HTTP/1.0 kept alive, with chunks and a length", "POST /v1/executions HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled, "401"},
	)
	return all
}

// chunks are bodies in chunks, most of them malformed.
func chunks() []attack {
	var all []attack
	for body, want := range map[string]string{
		"0\r\n\r\n": "401", "": "401", "-1\r\n": "401", "0x5\r\nhello\r\n0\r\n\r\n": "401", "5\nhello\n0\n\n": "401", "5\r\nhello0\r\n\r\n": "401", "ffffffffffffffff\r\n": "401",
		"FFFFFFFF\r\n" + smuggled: "401", "5;" + strings.Repeat("x", 100_000) + "\r\nhello\r\n0\r\n\r\n": "401", strings.Repeat("1;x=y\r\na\r\n", 10_000) + "0\r\n\r\n": "401",
		"0\r\nSignature: sig1=:AAAA:\r\nHost: y\r\nContent-Length: 5\r\n\r\n": "401", "0\r\n" + strings.Repeat("A: b\r\n", 100_000) + "\r\n": "401", "0\r\n\x00: b\r\n\r\n": "401",
		"0\r\n" + smuggled: "401", "0\r\n\r\n" + smuggled: "401", "1\r\nA\r\n0\r\n\r\n" + strings.Repeat(smuggled, 50): "401", "5\r\nhel": "401", "100000\r\n" + strings.Repeat("x", 1<<20) + "\r\n0\r\n\r\n": "401",
	} {
		for _, target := range []string{"/v1/executions", "/health"} {
			all = append(all, attack{target + " " + clip(fmt.Sprintf("%q", body)), message("POST", target, "Transfer-Encoding: chunked") + body, want})
		}
	}
	return all
}

// pipelines are many requests in one write. The connection ends after the first answer, so
// nothing that follows can be taken for the answer to somebody else's request.
func pipelines() []attack {
	refused := message("GET", "/v1/kernel")
	return []attack{
		{"two", refused + refused, "401"},
		{"1,000", strings.Repeat(refused, 1000), "401"},
		{"1,000 for health", strings.Repeat(smuggled, 1000), "200"},
		{"a path, then health", refused + smuggled, "401"},
		{"without an end between", strings.TrimSuffix(refused, "\r\n") + refused, "400"},
		{"a POST without a length, then health", message("POST", "/v1/executions") + smuggled, "401"},
		{"noise after a request", refused + strings.Repeat("\xff\x00", 100_000), "401"},
		{"Expect, then health", message("POST", "/v1/executions", "Expect: 100-continue", "Content-Length: 10") + smuggled, "(100 )?401"},
		{"an upgrade, then frames", message("GET", "/health", "Upgrade: websocket", "Connection: Upgrade") + "\x81\x85\x00\x00\x00\x00hello", "200"},
	}
}
