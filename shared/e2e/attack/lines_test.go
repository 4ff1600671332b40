package attack

import (
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
