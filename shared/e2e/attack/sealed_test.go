package attack

import (
	"bytes"
	"compress/gzip"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/line/linetest"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

// sent is a request of a holder of the key, and the codes with which it may be refused. None
// means that it must succeed.
type sent struct {
	name         string
	method, path string // with the query
	body         []byte
	raw          bool // body is what is sealed, with the byte that tells the compression
	codes        string
}

// A holder of the key sends texts that are well sealed and hostile in themselves. Each gets a
// refusal that names the cause: "internal" would be a fault of the executor.
func TestHostileTextsOfAKeyHolder(t *testing.T) {
	tier.Long(t)
	s := newStand(t)
	n := 0
	tables := map[string][]sent{
		"compression": bombs(), "queries": queries(), "JSON": texts(), "paths": s.paths(),
	}
	for _, kind := range slices.Sorted(maps.Keys(tables)) {
		for _, r := range tables[kind] {
			if n++; n%40 == 0 {
				s.workHonestly()
			}
			status, code := s.send(r)
			if status >= 200 && status < 300 {
				code = ""
			}
			if !allowed(r.codes, code) {
				t.Errorf("%s: %s: answered %d %q, want %q", kind, r.name, status, code, r.codes)
			}
		}
		t.Logf("%s: %d cases", kind, len(tables[kind]))
	}
	t.Logf("%d cases", n)
	s.workHonestly()
	s.end([]int{})
}

func allowed(codes string, got contract.Code) bool {
	for _, code := range strings.Split(codes, "|") {
		if contract.Code(code) == got {
			return true
		}
	}
	return false
}

// send seals, signs and sends r, and opens the answer.
func (s *stand) send(r sent) (status int, code contract.Code) {
	s.t.Helper()
	path, query, _ := strings.Cut(r.path, "?")
	req, err := http.NewRequest(r.method, s.vm.Ready.LocalURL+path, nil)
	must(s.t, err)
	req.URL.RawQuery = query
	if r.method != http.MethodGet {
		req.Header.Set(contract.HeaderInstance, s.instance())
	}
	x := auth.NewSigner(s.key).NewExchange()
	linetest.SealWith(s.t, x, req, r.body, time.Now())
	if r.raw {
		sealed := sealedRaw(s.t, x.BodyKey(), r.body)
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(sealed)), int64(len(sealed))
	}
	res, err := s.http.RoundTrip(req)
	must(s.t, err)
	defer res.Body.Close()
	part := strings.HasPrefix(r.path, contract.PathContent+"?")
	text, err := linetest.Open(x, res, res.Body, part)
	if err != nil {
		s.t.Fatalf("%s: the answer does not open: %v", r.name, err)
	}
	if bytes.Contains(text, []byte("root:")) {
		s.t.Errorf("%s: the answer has a line of /etc/passwd", r.name)
	}
	var failed contract.ErrorBody
	if res.StatusCode >= 300 {
		must(s.t, json.Unmarshal(text, &failed))
	}
	return res.StatusCode, failed.Error.Code
}

func post(name, path string, body []byte, codes string) sent {
	return sent{name, http.MethodPost, path, body, false, codes}
}

// sealedRaw seals plain, whatever it begins with, as RFC 8188 says.
func sealedRaw(t *testing.T, ikm [32]byte, plain []byte) []byte {
	const size = 1 << 16
	out := append(make([]byte, 16), 0, 1, 0, 0, 0) // salt, size of records, no key id
	key, err := hkdf.Key(sha256.New, ikm[:], out[:16], "Content-Encoding: aes128gcm\x00", 16)
	must(t, err)
	nonce, err := hkdf.Key(sha256.New, ikm[:], out[:16], "Content-Encoding: nonce\x00", 12)
	must(t, err)
	block, err := aes.NewCipher(key)
	must(t, err)
	aead, err := cipher.NewGCM(block)
	must(t, err)
	for n := uint64(0); ; n++ {
		text := plain[:min(len(plain), size-17)]
		plain = plain[len(text):]
		end := byte(1)
		if len(plain) == 0 {
			end = 2
		}
		own := bytes.Clone(nonce)
		binary.BigEndian.PutUint64(own[4:], binary.BigEndian.Uint64(own[4:])^n)
		out = aead.Seal(out, own, append(bytes.Clone(text), end), nil)
		if len(plain) == 0 {
			return out
		}
	}
}

// gzipped is one member of a text.
func gzipped(text io.Reader) []byte {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err == nil {
		_, err = io.Copy(w, text)
	}
	if err != nil {
		panic(err)
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return out.Bytes()
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// bombs are bodies that are compressed too well, or not as they say.
func bombs() []sent {
	small := gzipped(strings.NewReader(`{"request_id":"x"}`))
	length := func(member []byte, n uint32) []byte {
		return binary.LittleEndian.AppendUint32(bytes.Clone(member[:len(member)-4]), n)
	}
	giant := gzipped(io.LimitReader(zeros{}, 64<<20))
	var all []sent
	for _, c := range []struct {
		name, codes string
		body        []byte
	}{
		{"nothing", "bad_request", []byte{}}, {"only gzip's leading byte", "bad_request", []byte{1}}, {"compression 2", "bad_request", append([]byte{2}, small...)},
		{"64 MiB of zeros", "too_large", append([]byte{1}, giant...)}, {"64 MiB that say 10 bytes", "too_large", append([]byte{1}, length(giant, 10)...)},
		{"one byte over", "too_large", append([]byte{1}, gzipped(io.LimitReader(zeros{}, contract.MaxBodyBytes+1))...)},
		{"as much as allowed", "bad_request", append([]byte{1}, gzipped(io.LimitReader(zeros{}, contract.MaxBodyBytes))...)}, // opens, and is no JSON
		{"18 bytes that say 4 GiB", "bad_request", append([]byte{1}, length(small, 1<<32-1)...)}, {"two members", "bad_request", append([]byte{1}, append(small, small...)...)},
		{"gzip of gzip", "bad_request", append([]byte{1}, gzipped(bytes.NewReader(giant))...)}, {"a changed checksum", "bad_request", append([]byte{1}, flipped(small, len(small)-6)...)},
		{"9 MiB of noise", "too_large", append([]byte{0}, noise(9<<20)...)},
		{"a huge name in the header", "bad_request|too_large", append([]byte{1, 0x1f, 0x8b, 8, 8, 0, 0, 0, 0, 0, 255}, bytes.Repeat([]byte("x"), 4<<20)...)},
	} {
		all = append(all, sent{c.name, http.MethodPost, contract.PathExecutions, c.body, true, c.codes})
	}
	return all
}

func flipped(text []byte, i int) []byte {
	text = bytes.Clone(text)
	text[i] ^= 1
	return text
}

func noise(n int) []byte {
	text := make([]byte, n)
	_, _ = rand.Read(text)
	return text
}

// queries are long, or not as the executor writes them.
func queries() []sent {
	var all []sent
	for query, codes := range map[string]string{
		strings.Repeat("a", 64<<10): "", strings.Repeat("a", 64<<10+1): "bad_request", strings.Repeat("a", 8<<20): "bad_request", "limit=1": "",
		"limit=1&limit=2": "", "limit=%zz": "", "limit=%00": "bad_request", "limit=\xff": "bad_request", strings.Repeat("a=b&", 10_000): "", "limit=" + strings.Repeat("1", 1000): "bad_request",
	} {
		all = append(all, sent{"query " + clip(query), http.MethodGet, contract.PathExecutions + "?" + query, nil, false, codes})
	}
	return all
}

// texts are bodies that are no JSON, or too much of it.
func texts() []sent {
	var all []sent
	for _, c := range []struct{ name, code, body string }{
		{"nested arrays", "too_large", strings.Repeat("[", 1<<20)},
		{"nested objects", "too_large", strings.Repeat(`{"a":`, 1<<20)},
		{"8 MiB of a text", "bad_request", `"` + strings.Repeat("x", 8<<20-2) + `"`},
		{"8 MiB of escapes", "bad_request", `{"code":"` + strings.Repeat(`\\u0000`, 1<<20)},
		{"a million fields", "too_large", "{" + strings.Repeat(`"a":1,`, 1<<20) + `"a":1}`},
		{"a million numbers", "too_large", "[" + strings.Repeat("1,", 1<<20) + "1]"},
	} {
		all = append(all, post(c.name, contract.PathExecutions, []byte(c.body), c.code))
	}
	for name, body := range map[string]string{
		"none": "", "an array": "[]", "cut": `{"a":`, "two": "{} {}", "a NUL": "{}\x00", "no UTF-8": "{\"a\":\"\xff\"}",
		"nested and closed": strings.Repeat(`{"a":[`, 9_000) + strings.Repeat("]}", 9_000), "a huge number": `{"timeout_seconds":1e999999}`, "wrong types": `{"code":1,"kernel_id":1}`,
	} {
		all = append(all, post(name, contract.PathExecutions, []byte(body), "bad_request"))
	}
	return all
}

// Tunnels send requests of strangers and of the owner over one connection. If tunnel and
// executor disagree where a stranger's request ends, the owner gets answers to what the
// stranger hid in it. So the connection ends with each such request.
func TestAStrangerOnTheOwnersConnectionHidesNoRequest(t *testing.T) {
	s := newStand(t)
	n := 0
	for _, lines := range []string{
		"Transfer-Encoding: chunked", "Content-Length: 5\r\nTransfer-Encoding: chunked", "Transfer-Encoding: CHUNKED\r\nContent-Length: 0", "Transfer-Encoding:\r\n chunked\r\nContent-Length: 5",
		"Content-Length: 5\r\nContent-Length: 6", "Content-Length: +5", "Content-Length : 5", "Expect: x", "A: \x00",
	} {
		for _, first := range []string{message("POST", "/v1/executions", lines), message("GET", "/v1/kernel", lines), message("POST", "/health", lines)} {
			n++
			own := s.captureOf(http.MethodGet, contract.PathKernel, nil, time.Now())
			got := ask(t, s.address, n, own.raw()+first+"0\r\n\r\n"+smuggled)
			if !regexp.MustCompile(`^200 (400|401|417|501)$`).MatchString(got.statuses) {
				t.Errorf("%q: answered %s", first, got.statuses)
			}
		}
		s.workHonestly()
	}
	t.Logf("%d cases", n)
	s.end([]int{})
}

// The same requests arrive on 40 connections at the same moment.
func TestConcurrentReplaysRunOnce(t *testing.T) {
	s := newStand(t)
	const connections = 40
	var want []int
	for n := range 5 {
		raw := s.capture(n).last()
		want = append(want, n)
		var accepted [connections]string
		start := make(chan struct{})
		var all sync.WaitGroup
		for i := range connections {
			conn := dial(t, s.address, i)
			all.Go(func() {
				defer conn.Close()
				<-start
				if _, err := io.WriteString(conn, raw); err != nil {
					t.Error(err)
				}
				accepted[i] = read(t, conn).statuses
			})
		}
		close(start)
		all.Wait()
		slices.Sort(accepted[:])
		if accepted[0] != "200" || accepted[1] != "401" || accepted[connections-1] != "401" {
			t.Errorf("answered %v", accepted)
		}
		s.workHonestly()
	}
	s.end(want)
}

// mostOfFrames bounds what messages of the kernel cost, in MiB: the share of all sockets, what
// small messages may have besides, and what Go has not freed yet.
const mostOfFrames = 450

// rawFrames writes frames past ZeroMQ, to each connection of the executor: one of 250 MiB
// inside a message, thousands of small ones, and the head of one of which nothing comes. A
// file is there while one of them works.
const rawFrames = `
import os, socket
head = b'\x03' + (250 << 20).to_bytes(8, 'big')
for name in os.listdir('/proc/self/fd'):
    try:
        mine = socket.socket(fileno=os.dup(int(name)))
        if mine.family != socket.AF_UNIX or mine.getsockname()[-3:-1] != 'k-' or mine.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            continue
    except OSError:
        continue
    open('attack' + name, 'w').close()
    if os.fork() == 0:
        try:
            mine.setblocking(True)
            mine.sendall(head)
            for _ in range(250):
                mine.sendall(bytes(1 << 20))
            mine.sendall(b'\x01\x05hello' * 20_000)
            mine.sendall(head)
        finally:
            os.remove('attack' + name)
            os._exit(0)
`

// Code in the kernel has its sockets, and can write to all of them what is no message.
func TestRawFramesOfKernelCodeTakeBoundedMemory(t *testing.T) {
	tier.Long(t)
	s := newStand(t)
	defer s.vm.Kill() // the peak of its memory is above what other tests allow
	ctx := within.Context(t)
	x, err := s.relay.Submit(ctx, contract.Submit{Code: rawFrames, WaitSeconds: 1})
	must(t, err)
	within.Until(t, "the attack is over", func() bool {
		under, err := filepath.Glob(filepath.Join(s.vm.Config.Dir, "attack*"))
		return err == nil && len(under) == 0
	})
	used, err := harness.MemoryOf(s.vm.PID())
	must(t, err)
	t.Logf("%s (%s), memory %.0f to %.0f MiB (peak %.0f)", x.Status, x.Reason, s.before.memory.Now, used.Now, used.Peak)
	if grown := used.Peak - s.before.memory.Now; grown > mostOfFrames {
		t.Errorf("memory grew by %.0f MiB at the peak", grown)
	}
	kernel, err := s.relay.Kernel(ctx)
	must(t, err)
	_, err = s.relay.RestartKernel(ctx, kernel.KernelID)
	must(t, err)
	s.run("honest = 1")
}

// forgedReplies makes the kernel answer requests for its variables with millions of values.
const forgedReplies = `
shell = get_ipython()
_forged = %s
shell.user_expressions = lambda asked: {key: _forged for key in asked} if asked else {}
`

// Replies of the kernel that code there has forged are not decoded into gigabytes.
func TestForgedRepliesOfTheKernelTakeBoundedMemory(t *testing.T) {
	tier.Long(t)
	for name, forged := range map[string]string{
		"millions of types":     `{'status': 'ok', 'data': {str(i): 0 for i in range(4_000_000)}}`,
		"millions of variables": `{'status': 'ok', 'data': {'application/vnd.colab-relay.namespace+json': {'variables': [{}] * 8_000_000}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t)
			defer s.vm.Kill()
			ctx := within.Context(t)
			x, err := s.relay.Submit(ctx, contract.Submit{Code: fmt.Sprintf(forgedReplies, forged), WaitSeconds: 30})
			must(t, err)
			if x.Status != contract.StatusSucceeded {
				t.Fatalf("%+v", x)
			}
			if _, err := s.relay.Variables(ctx); err == nil {
				t.Error("a forged list of variables is believed")
			}
			used, err := harness.MemoryOf(s.vm.PID())
			must(t, err)
			t.Logf("memory %.0f to %.0f MiB (peak %.0f)", s.before.memory.Now, used.Now, used.Peak)
			if grown := used.Peak - s.before.memory.Now; grown > mostOfFrames {
				t.Errorf("memory grew by %.0f MiB at the peak", grown)
			}
		})
	}
}
