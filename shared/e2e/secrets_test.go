package e2e

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/line/linetest"
)

// session is what a tunnel carries in a test: each kind of content has its own mark.
type session struct{ marks map[string]string }

// mark returns the mark of a kind of content. It is a valid name in Python and in a path.
func (s *session) mark(kind string) string {
	m := "zqx" + strings.ReplaceAll(kind, " ", "") + "7Kd93Vb2Lm5"
	s.marks[kind] = m
	return m
}

// spelled is an expression of Python for text that the code does not contain.
func spelled(text string) string {
	return fmt.Sprintf("'%s' + '%s'", text[:5], text[5:])
}

// unsealed opens the captured messages as holders of the secret do, and returns their
// queries and bodies.
func unsealed(t *testing.T, captured []harness.Recording) (texts [][]byte) {
	t.Helper()
	key, err := auth.NewSecret(secret)
	if err != nil {
		t.Fatal(err)
	}
	vm := linetest.NewExecutor(key, instanceIn(t, captured), time.Now)
	for _, c := range captured {
		up, down := bufio.NewReader(bytes.NewReader(c.Up)), bufio.NewReader(bytes.NewReader(c.Down))
		for {
			req, err := http.ReadRequest(up)
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal("in the capture:", err)
			}
			x, body, err := vm.Open(req)
			if err != nil {
				t.Fatalf("%s %s: %v", req.Method, req.URL.Path, err)
			}
			texts = append(texts, []byte(req.URL.RawQuery), body)
			res, err := http.ReadResponse(down, req)
			if err != nil {
				break // the session ended before the answer
			}
			if x == nil { // GET /health, which is open to all
				_, _ = io.Copy(io.Discard, res.Body)
				continue
			}
			text, err := linetest.Open(x, res, res.Body, false)
			if err != nil {
				t.Fatalf("the answer to %s %s: %v", req.Method, req.URL.Path, err)
			}
			texts = append(texts, text)
		}
	}
	return texts
}

// instanceIn returns the executor that answered first.
func instanceIn(t *testing.T, captured []harness.Recording) contract.Instance {
	t.Helper()
	for _, c := range captured {
		if res, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(c.Down)), nil); err == nil {
			instance, err := contract.ParseInstance(res.Header.Get(contract.HeaderInstance))
			if err != nil {
				t.Fatal(err)
			}
			return instance
		}
	}
	t.Fatal("nothing was captured")
	return contract.Instance{}
}

// view is a text to be searched, in lower case: as it is, or as it is unpacked.
type view struct {
	how  string
	text []byte
}

// chunkSize is what stands between two chunks of HTTP.
var chunkSize = regexp.MustCompile(`\r\n[0-9a-fA-F]+\r\n`)

// viewsOf returns all views of texts: plain, with the chunks of HTTP joined, and everything
// that begins as gzip does, also if it is cut.
func viewsOf(texts ...[]byte) (all []view) {
	for _, text := range texts {
		joined := chunkSize.ReplaceAll(text, nil)
		all = append(append(all, view{"", bytes.ToLower(text)}), unpacked(text)...)
		if len(joined) < len(text) {
			all = append(append(all, view{"in chunks, ", bytes.ToLower(joined)}), unpacked(joined)...)
		}
	}
	return all
}

func unpacked(text []byte) (all []view) {
	for magic := []byte("\x1f\x8b\x08"); ; text = text[len(magic):] {
		i := bytes.Index(text, magic)
		if i < 0 {
			return all
		}
		text = text[i:]
		if z, err := gzip.NewReader(bytes.NewReader(text)); err == nil {
			inside, _ := io.ReadAll(io.LimitReader(z, 64<<20))
			all = append(all, view{"in gzip, ", bytes.ToLower(inside)})
		}
	}
}

// find returns in which form a mark is in any of the views, or "". It knows plain bytes,
// base64 at each alignment, hexadecimal, percent and \u escapes, and UTF-16. The case does
// not count, not even in base64: a long mark is not met by chance.
func find(mark string, views []view) string {
	for form, pattern := range forms(mark) {
		lower := []byte(strings.ToLower(pattern))
		for _, v := range views {
			if bytes.Contains(v.text, lower) {
				return v.how + form
			}
		}
	}
	return ""
}

func forms(mark string) map[string]string {
	all := map[string]string{"plain": mark, "hexadecimal": hex.EncodeToString([]byte(mark))}
	var percent, unicode, wide strings.Builder
	for _, b := range []byte(mark) {
		fmt.Fprintf(&percent, "%%%02x", b)
		fmt.Fprintf(&unicode, `\u%04x`, b)
		wide.Write([]byte{b, 0})
	}
	all["percent escapes"], all[`\u escapes`], all["UTF-16"] = percent.String(), unicode.String(), wide.String()
	for before := range 3 {
		for name, enc := range map[string]*base64.Encoding{"base64": base64.RawStdEncoding, "base64url": base64.RawURLEncoding} {
			// The characters at both ends also depend on the neighbours of the mark.
			text := enc.EncodeToString(append(make([]byte, before), mark...))
			all[fmt.Sprint(name, " after ", before)] = text[[]int{0, 2, 3}[before] : len(text)-1]
		}
	}
	return all
}

// places is everything that may show a secret, by name.
type places map[string][]byte

// addProcesses adds the arguments and the environment of every process of this computer.
func (p places) addProcesses() {
	for _, pattern := range []string{"/proc/[0-9]*/cmdline", "/proc/[0-9]*/environ"} {
		files, _ := filepath.Glob(pattern)
		for _, file := range files {
			p[file], _ = os.ReadFile(file) // a process may have ended
		}
	}
}

// addFiles adds all files below a folder but those at these paths.
func (p places) addFiles(t *testing.T, folder string, but ...string) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && !slices.Contains(but, path) {
			p[path], _ = os.ReadFile(path) // a file may be removed meanwhile
		}
		return nil
	})
	must(t, err)
}

// hold fails for each place that shows one of the secrets in any form.
func (p places) hold(t *testing.T, secrets map[string]string) {
	t.Helper()
	for name, content := range p {
		views := viewsOf(content)
		for what, secret := range secrets {
			if form := find(secret, views); form != "" {
				t.Errorf("%s shows the %s, %s", name, what, form)
			}
		}
	}
}
