package attack

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"colabrelay/shared/tier"
)

// Strangers send whatever they like. Only GET and HEAD /health are answered with more than a
// refusal. 400, 431, 501 and 505 are net/http's own refusals.
func TestHostileMessagesOfStrangers(t *testing.T) {
	tier.Long(t)
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
		{"a NUL", "\x00", "400"},
		{"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("\x00", 506), "400"},
		{"SSH", "SSH-2.0-OpenSSH_9.9\r\n", "400"},
		{"SOCKS", "\x05\x01\x00", "400"},
		{"a ZMTP greeting", "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00NULL" + strings.Repeat("\x00", 48), "400"},
		{"PROXY protocol", "PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\nGET /health HTTP/1.1" + end, "400"},
		{"PROXY protocol v2", "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\x7f\x00\x00\x01\x7f\x00\x00\x01\x00\x01\x00\x02GET /health HTTP/1.1" + end, "400"},
		{"HTTP/0.9", "GET /health\r\n", "400"},
		{"HTTP/1.0", "GET /v1/kernel HTTP/1.0\r\n\r\n", "401"},
		{"HTTP/1.0 kept alive", "GET /v1/kernel HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /v1/kernel HTTP/1.0\r\n\r\n", "401"},
		{"HTTP/1.0 health", "GET /health HTTP/1.0\r\n\r\n", "200"},
		{"HTTP/1.2", "GET /v1/kernel HTTP/1.2" + end, "401"},
		{"HTTP/1.9", "GET /v1/kernel HTTP/1.9" + end, "401"},
		{"HTTP/2.0", "GET /health HTTP/2.0" + end, "505"},
		{"HTTP/3.0", "GET /health HTTP/3.0" + end, "505"},
		{"HTTP/9999999999.1", "GET /health HTTP/9999999999.1" + end, "400"},
		{"HTTP/-1.1", "GET /health HTTP/-1.1" + end, "400"},
		{"HTTP/1.1.1", "GET /health HTTP/1.1.1" + end, "400"},
		{"HTTP/1", "GET /health HTTP/1" + end, "400"},
		{"HTTP/01.1", "GET /health HTTP/01.1" + end, "400"},
		{"http/1.1", "GET /health http/1.1" + end, "400"},
		{"HTCPCP/1.0", "BREW /health HTCPCP/1.0" + end, "400"},
		{"a space after the version", "GET /health HTTP/1.1 " + end, "400"},
		{"two spaces", "GET  /health HTTP/1.1" + end, "400"},
		{"tabs", "GET\t/health\tHTTP/1.1" + end, "400"},
		{"a space first", " GET /health HTTP/1.1" + end, "400"},
		{"a NUL in the line", "GET /health\x00 HTTP/1.1" + end, "400"},
		{"a line of only CR", "GET /v1/kernel HTTP/1.1\rHost: x\r\r", "400"},
		{"bare LF", "GET /v1/kernel HTTP/1.1\nHost: x\n\n", "401"},
		{"HTTP/2 with prior knowledge", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", "401"},
		{"HTTP/2's preface, cut", "PRI * HTTP/2.0\r\n\r\n", "401"},
		{"HTTP/2's preface on a path", "PRI /v1/kernel HTTP/2.0\r\n\r\n", "505"},
		{"no method", " /health HTTP/1.1" + end, "400"},
		{"an empty line for a method", "/health HTTP/1.1" + end, "400"},
		{"get", "get /health HTTP/1.1" + end, "401"},
		{"GE T", "GE T /health HTTP/1.1" + end, "400"},
		{"a NUL in the method", "G\x00T /health HTTP/1.1" + end, "400"},
		{"a method of UTF-8", "GÉT /health HTTP/1.1" + end, "400"},
		{"a method with a quote", "GE\"T /health HTTP/1.1" + end, "400"},
		{"a method of 10,000 bytes", strings.Repeat("M", 10_000) + " /health HTTP/1.1" + end, "401"},
		{"a method of 20,000 bytes", strings.Repeat("M", 20_000) + " /health HTTP/1.1" + end, "431"},
		{"a method without an end", strings.Repeat("M", 1<<20), "431"},
		method("HEAD", "/v1/kernel"), method("POST", "/health"), method("PUT", "/health"), method("DELETE", "/health"),
		method("PATCH", "/v1/executions"), method("OPTIONS", "*"), method("OPTIONS", "/health"), method("OPTIONS", "/v1/executions"),
		method("TRACE", "/v1/executions"), method("TRACK", "/health"), method("CONNECT", "127.0.0.1:22"), method("CONNECT", "/health"),
		method("CONNECT", "x:443"), method("PROPFIND", "/"), method("MKCOL", "/v1/files"), method("COPY", "/v1/files"), method("MOVE", "/v1/files"),
		method("LOCK", "/v1/files"), method("DEBUG", "/"), method("PURGE", "/health"), method("LINK", "/"), method("SOURCE", "/"),
		method("QUERY", "/v1/executions"), method("M-SEARCH", "*"), method("SUBSCRIBE", "/"), method("BASELINE-CONTROL", "/"), method("$", "/health"),
	}
}

func method(name, target string) attack {
	return attack{name + " " + target, name + " " + target + " HTTP/1.1\r\nHost: x\r\nX-Mark: " + mark + end[len("\r\nHost: x"):], "401"}
}

// targets are ways to write a path, most of which some program takes for /health or a file.
func targets() []attack {
	var all []attack
	for target, want := range map[string]string{
		"/": "401", "//": "401", "*": "401", "?": "400", "#": "400", "health": "400", "http:": "401", "://": "400",
		"/health/": "401", "//health": "401", "/./health": "401", "/x/../health": "401", "/health/..": "401", "/HEALTH": "401", "/health%00": "401",
		"/health%2f": "401", "/health;x": "401", "/health.json": "401", "/%68ealth": "200", "/health%20": "401", "/health%0d%0aX:%20y": "401", "/%2e%2e/health": "401",
		"/health?": "200", "/health?path=/etc/passwd": "200", "/health#x": "401", "/health\\": "401", "\\health": "400",
		"http://x/health": "200", "http://x:y@z/health": "200", "http://169.254.169.254/latest/meta-data": "401", "http://x/v1/kernel": "401",
		"https://x/v1/kernel": "401", "ftp://x/v1/kernel": "401", "file:///etc/passwd": "401", "gopher://x/_": "401", "javascript:alert(1)": "401",
		"http://[::1%25lo]/v1/kernel": "401", "http://[::1]x/v1/kernel": "400", "http://x\x00/v1/kernel": "400", "//x/v1/kernel": "401",
		"/v1/../health": "401", "/v1/kernel/..;/..;/health": "401", "/v1//kernel": "401", "/v1/%6bernel": "401", "/v1/kernel%": "400", "/v1/kernel%zz": "400",
		"/v1/executions/%2e%2e/kernel": "401", "/v1/executions/..%2f..%2fetc%2fpasswd": "401", "/v1/executions/..%c0%af": "401", "/v1/executions/\xff\xfe": "401",
		"/v1/executions/%ff%fe": "401", "/v1/executions/x/blobs/-1": "401", "/v1/executions/x/blobs/99999999999999999999": "401", "/v1/files?path=../../etc/passwd": "401",
		"/v1/files/content?path=/etc/shadow&etag=x": "401", "/v1/files/content?s=AAAA": "401", "/v1/files?s=" + strings.Repeat("A", 8000): "401",
		"/v1/uploads/../../x": "401", "/.git/config": "401", "/.env": "401", "/.colab-relay/instance.json": "401", "/debug/pprof/": "401", "/debug/vars": "401",
		"/metrics": "401", "/admin": "401", "/favicon.ico": "401", "/robots.txt": "401", "/api/kernels": "401", "/api/contents": "401", "/?token=x": "401", "/cgi-bin/x": "401",
		"/" + strings.Repeat("a", 15_000): "401", "/" + strings.Repeat("a", 17_000): "431", "/" + strings.Repeat("../", 4_000): "401",
		"/" + strings.Repeat("%2e%2e/", 2_000): "401", "/x?" + strings.Repeat("a=b&", 4_000): "401", "/x?" + strings.Repeat("a=b&", 5_000): "431",
		"/ü": "401", "/v1/kernel\t": "400", "/v1/kernel\x7f": "400", "/v1/kernel\x01": "400", "/v1 /kernel": "400", "/v1/kernel?\x00": "400", "/\u202egnp.exe": "401",
	} {
		all = append(all, attack{"target " + clip(target), "GET " + target + " HTTP/1.1" + end, want})
	}
	return all
}

func clip(text string) string { return text[:min(len(text), 50)] }
