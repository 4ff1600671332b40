package transfer

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"colabrelay/relay/client"
	"colabrelay/shared/e2e/fakevm"
)

// badLine is a network to a fake VM without sockets, which a clock of the test's can measure.
// breaks returns after how many bytes of an answer's body the connection breaks; a negative number
// for before the answer.
type badLine struct {
	vm     *fakevm.VM
	breaks func(r *http.Request) (after int64, broken bool)
	took   time.Duration // by each request that breaks
	most   int64         // bytes of a request that a proxy in between accepts; 0 for no limit
}

func (l badLine) RoundTrip(req *http.Request) (*http.Response, error) {
	var body io.Reader
	if req.Body != nil {
		defer req.Body.Close()
		body = req.Body
	}
	if l.most > 0 && req.ContentLength > l.most {
		return &http.Response{StatusCode: http.StatusRequestEntityTooLarge, Header: http.Header{}, Body: http.NoBody}, nil
	}
	after, broken := l.breaks(req)
	if broken {
		select {
		case <-time.After(l.took):
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
	}
	if broken && after < 0 {
		return nil, io.EOF
	}
	arrived := httptest.NewRequestWithContext(req.Context(), req.Method, req.URL.String(), body)
	arrived.Header = req.Header.Clone()
	w := httptest.NewRecorder()
	l.vm.ServeHTTP(w, arrived)
	res := w.Result()
	if broken {
		res.Body = io.NopCloser(io.MultiReader(io.LimitReader(res.Body, after), brokenReader{}))
	}
	return res, nil
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

const silentFile = 3 << 20

// overBadLine transfers a file over such a line and returns how long that took.
func overBadLine(t *testing.T, upload bool, line badLine) (time.Duration, error) {
	t.Helper()
	line.vm = fakevm.New()
	c, err := client.New(client.Config{BaseURL: "http://vm.test", Secret: line.vm.Secret, Transport: line})
	must(t, err)
	defer c.Close()
	_, err = c.Kernel(t.Context()) // as a command does first
	must(t, err)
	content := strings.Repeat("x", silentFile)
	line.vm.Put("big", []byte(content))
	dir, began := t.TempDir(), time.Now()
	if !upload {
		_, err = Download(t.Context(), c, fakevm.Root+"/big", Local{Dir: dir}, Options{})
		return time.Since(began), err
	}
	must(t, os.WriteFile(filepath.Join(dir, "up"), []byte(content), 0o600))
	_, err = Upload(t.Context(), c, filepath.Join(dir, "up"), fakevm.Root+"/up", Options{})
	return time.Since(began), err
}

// onLine selects requests by method and a part of their path.
func onLine(method, path string) func(*http.Request) bool {
	return func(r *http.Request) bool { return r.Method == method && strings.Contains(r.URL.Path, path) }
}

// A connection that breaks each time ends the transfer a minute after the last byte, whichever
// request it is that breaks, at once or after a while.
func TestATransferEndsWhenNoByteArrives(t *testing.T) {
	for name, c := range map[string]struct {
		upload bool
		breaks func(*http.Request) bool
		parts  bool // it is the parts that break
	}{
		"description of a download": {false, onLine("GET", "/files/stat"), false},
		"parts of a download":       {false, onLine("GET", "/files/content"), true},
		"description of a target":   {true, onLine("GET", "/files/stat"), false},
		"start of an upload":        {true, onLine("POST", "/uploads"), false},
		"parts of an upload":        {true, onLine("PUT", "/uploads"), true},
	} {
		for what, took := range map[string]time.Duration{"at once": 0, "after a while": 7 * time.Second} {
			t.Run(name+" "+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					spent, err := overBadLine(t, c.upload, badLine{took: took, breaks: func(r *http.Request) (int64, bool) { return -1, c.breaks(r) }})
					lost, ok := errors.AsType[*client.Error](err)
					if !ok || lost.Kind != client.KindUnreachable || errors.Is(err, ErrSilent) != c.parts {
						t.Errorf("error %v", err)
					}
					// The first attempt, the longest delay, and an attempt that begins just in time.
					if most := client.Patience + 2*took + 8*time.Second; spent < client.Patience || spent > most {
						t.Errorf("it took %s", spent)
					}
				})
			})
		}
	}
}

// While bytes arrive, a transfer goes on, however often the connection breaks and however long it
// all takes.
func TestATransferGoesOnWhileBytesArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := 0
		spent, err := overBadLine(t, false, badLine{took: 15 * time.Second, breaks: func(r *http.Request) (int64, bool) {
			if !onLine("GET", "/files/content")(r) || broken == 40 {
				return 0, false
			}
			broken++
			return 130_000, true // one record of 64 KiB, and some
		}})
		if err != nil || broken < 40 || spent < 5*client.Patience {
			t.Errorf("%d breaks in %s: %v", broken, spent, err)
		}
	})
}

// Parts and batches fit what a proxy in front of the executor accepts. One that accepts less than
// any should is named.
func TestUploadsFitAProxysLimit(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "folder"), 0o700))
	fill(t, filepath.Join(dir, "file"), 9<<20+5, 1)
	for i := range 9 {
		fill(t, filepath.Join(dir, "folder", fmt.Sprint(i)), 250_000+int64(i), byte(i))
	}
	for most, fits := range map[int64]bool{4 << 20: true, 1 << 20: true, 300_000: true, 100_000: false} {
		for _, name := range []string{"file", "folder"} {
			vm := fakevm.New()
			c, err := client.New(client.Config{BaseURL: "http://vm.test", Secret: vm.Secret, Transport: badLine{vm: vm, most: most, breaks: onNothing}})
			must(t, err)
			_, err = Upload(t.Context(), c, filepath.Join(dir, name), fakevm.Root+"/"+name, Options{})
			lost, _ := errors.AsType[*client.Error](err)
			if fits && err != nil || !fits && (lost == nil || lost.Kind != client.KindTooLarge) {
				t.Errorf("%s through a limit of %d bytes: %v", name, most, err)
			}
			c.Close()
		}
	}
}

func onNothing(*http.Request) (int64, bool) { return 0, false }
