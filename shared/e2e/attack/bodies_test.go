package attack

import (
	"fmt"
	"strings"
)

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
