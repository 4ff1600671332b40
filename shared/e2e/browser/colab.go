// Package browser is a stand-in of Colab in a real browser, for tests and a demo: Colab serves
// a notebook's page, whose code runs in a real kernel, and Chromium shows it headless as
// https://colab.research.google.com, so that its Origin is that of the real page. The page
// speaks to the relay as Colab's does; see page/mcp.js. It must not be linked into a program.
//
// The tests have the tag chromium, because they need a Chromium: `make browser` installs one
// and runs them. Start reading at New and Start.
package browser

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"colabrelay/shared/e2e/standin"
	"colabrelay/shared/stacks"
)

// Host is the host of Colab's page, whose name the stand-in has in its browser.
const Host = "colab.research.google.com"

// maxBody bounds a cell's code and a saved notebook, in bytes.
const maxBody = 32 << 20

//go:embed page
var pages embed.FS

// Colab is the stand-in's server: for https, and for http, which a hostile page may use.
type Colab struct {
	Secure, Plain *httptest.Server
	KeyDigest     string // of the certificate's key, by which the browser accepts it

	kernel *standin.Kernel
	ctx    context.Context // of the server's life: cells run on without their tab
	cancel context.CancelFunc
	mu     sync.Mutex
	saved  map[string][]byte // notebooks by their path
}

// New starts the stand-in, with a kernel that works in dir and has these variables in its
// environment. Close ends both.
func New(ctx context.Context, dir string, env ...string) (*Colab, error) {
	python := filepath.Join(stacks.Root(), ".python", "old", "bin", "python")
	kernel, err := standin.StartKernel(ctx, standin.KernelOptions{Python: python, Dir: dir, Env: append([]string{"MPLBACKEND=module://matplotlib_inline.backend_inline"}, env...)})
	if err != nil {
		return nil, fmt.Errorf("%w (make python sets up %q)", err, python)
	}
	c := &Colab{kernel: kernel, saved: map[string][]byte{}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	certificate, err := c.certificate()
	if err != nil {
		return nil, err
	}
	c.Plain = httptest.NewServer(c.routes())
	c.Secure = httptest.NewUnstartedServer(c.routes())
	c.Secure.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	c.Secure.Config.ErrorLog = log.New(io.Discard, "", 0) // a browser ends handshakes that it does not need
	c.Secure.StartTLS()
	return c, nil
}

// Close ends the servers and the kernel.
func (c *Colab) Close() {
	c.cancel()
	for _, server := range []*httptest.Server{c.Secure, c.Plain} {
		server.CloseClientConnections()
		server.Close()
	}
	c.kernel.Close()
}

// certificate makes a certificate for this run.
func (c *Colab) certificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{Host}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
	made, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return tls.Certificate{}, err
	}
	digest := sha256.Sum256(public)
	c.KeyDigest = base64.StdEncoding.EncodeToString(digest[:])
	return tls.Certificate{Certificate: [][]byte{made}, PrivateKey: key}, nil
}

func (c *Colab) routes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /page/", http.FileServerFS(pages))
	mux.HandleFunc("POST /kernel", c.execute)
	mux.HandleFunc("GET /saved/{path...}", c.load)
	mux.HandleFunc("PUT /saved/{path...}", c.save)
	mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/notebooks/") && !strings.HasPrefix(r.URL.Path, "/drive/") {
			http.NotFound(w, r) // such as the icon of the page
			return
		}
		http.ServeFileFS(w, r, pages, "page/index.html")
	})
	return mux
}

// execute runs a cell's code. It runs on if its tab goes.
func (c *Colab) execute(w http.ResponseWriter, r *http.Request) {
	code, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	outputs, count := c.kernel.Execute(c.ctx, string(code))
	if outputs == nil {
		outputs = []map[string]any{}
	}
	answer, err := json.Marshal(map[string]any{"outputs": outputs, "count": count})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(answer) // the tab may have gone
}

func (c *Colab) load(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	notebook, ok := c.saved[r.PathValue("path")]
	c.mu.Unlock()
	if !ok {
		http.NotFound(w, r)
		return
	}
	_, _ = w.Write(notebook)
}

func (c *Colab) save(w http.ResponseWriter, r *http.Request) {
	notebook, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.saved[r.PathValue("path")] = notebook
}

// writeScript writes a program that runs one command with its own arguments behind it.
func writeScript(path string, command []string) error {
	quoted := make([]string, len(command))
	for i, word := range command {
		quoted[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return os.WriteFile(path, []byte("#!/bin/sh\nexec "+strings.Join(quoted, " ")+" \"$@\" >/dev/null 2>&1\n"), 0o700)
}
