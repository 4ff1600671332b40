package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"colabrelay/executor/tunnel/ngroktest"
	"colabrelay/shared/e2e/browser"
	"colabrelay/shared/e2e/harness"
)

// pageStage is what the demo of Colab's page needs: the page with its VM, ngrok's edge, a
// release of the executor, and the browser.
type pageStage struct {
	vm       string // folder with the VM's content, home and temporary files
	colab    *browser.Colab
	edge     *ngroktest.Edge
	release  *httptest.Server
	chromium *browser.Chromium
	tools    *browser.DevTools // once the relay started the browser
	tabs     []*browser.Tab    // all that the relay opened
	token    string            // of ngrok
}

// open starts all but the browser, which the relay starts.
func (p *pageStage) open(ctx context.Context, executor string) (err error) {
	if p.vm, err = os.MkdirTemp("", "vm-"); err != nil { // a short path: sockets allow 107 bytes
		return err
	}
	for _, name := range []string{"content", "home", "tmp"} {
		if err := os.Mkdir(filepath.Join(p.vm, name), 0o700); err != nil {
			return err
		}
	}
	if p.edge, err = ngroktest.Open(p.vm); err != nil {
		return err
	}
	program, err := os.ReadFile(executor)
	if err != nil {
		return err
	}
	p.release, p.token = httptest.NewServer(releaseOf(program)), "2demo"+rand.Text()
	p.colab, err = browser.New(ctx, filepath.Join(p.vm, "content"),
		"HOME="+filepath.Join(p.vm, "home"), "TMPDIR="+filepath.Join(p.vm, "tmp"),
		"COLAB_RELAY_NGROK_SERVER="+p.edge.Addr, "COLAB_RELAY_NGROK_CA="+p.edge.CAFile)
	if err != nil {
		return err
	}
	p.chromium, err = browser.NewChromium(p.colab)
	return err
}

// releaseOf serves a release with this executor.
func releaseOf(program []byte) http.Handler {
	sum := sha256.Sum256(program)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1.0.0/SHA256SUMS", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "%x  executor-linux-amd64\n%[1]x  executor-linux-arm64\n", sum)
	})
	mux.HandleFunc("GET /v1.0.0/{program}", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(program) })
	return mux
}

// tab waits for the next tab that the relay opens.
func (p *pageStage) tab(ctx context.Context) (tab *browser.Tab, err error) {
	if p.tools == nil {
		if p.tools, err = p.chromium.Attach(ctx); err != nil {
			return nil, err
		}
	}
	if tab, err = p.tools.Opened(ctx, "https://"+browser.Host+"/", p.tabs...); err == nil {
		p.tabs = append(p.tabs, tab)
	}
	return tab, err
}

// current is the tab that was opened last.
func (p *pageStage) current() *browser.Tab { return p.tabs[len(p.tabs)-1] }

// close ends what open started, and the executors on the VM.
func (p *pageStage) close() {
	if p.tools != nil {
		p.tools.Close()
	}
	if p.chromium != nil {
		_ = p.chromium.Close()
	}
	if p.colab != nil {
		p.colab.Close()
	}
	if p.vm != "" {
		p.endExecutors()
		os.RemoveAll(p.vm)
	}
	if p.release != nil {
		p.release.Close()
	}
	if p.edge != nil {
		p.edge.Close()
	}
}

// endExecutors ends the executors that were started through the notebook.
func (p *pageStage) endExecutors() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	files, _ := filepath.Glob(filepath.Join(p.vm, "tmp", "colab-relay-enroll-*", "pid"))
	for _, file := range files {
		var pid int
		if text, err := os.ReadFile(file); err != nil || json.Unmarshal(text, &pid) != nil || pid <= 1 {
			continue
		}
		_ = syscall.Kill(pid, syscall.SIGTERM)
		if harness.Poll(ctx, func() (bool, error) { return syscall.Kill(pid, 0) != nil, nil }) != nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}
