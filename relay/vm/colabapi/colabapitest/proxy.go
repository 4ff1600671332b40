package colabapitest

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"path"
	"slices"
	"strings"
)

// machine is a VM.
type machine struct {
	id    string
	spec  specKey
	token string // of its proxy; empty after it has expired

	kernels []string // that were started on it
	folders []string // that files were uploaded to
}

type connKey struct{}

// proxy is what Google has in front of VMs, for the host PORT-ID.
func (g *Google) proxy(w http.ResponseWriter, r *http.Request, host string) {
	port, id, _ := strings.Cut(host, "-")
	jupyter := port == "8080"
	if !g.admit(r, id) {
		http.NotFound(w, r)
		return
	}
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Colab-") {
			r.Header.Del(name)
		}
	}
	p := &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) {
		p.Out.URL.Scheme, p.Out.URL.Host = "http", "127.0.0.1:"+port
		p.Out.Host = p.Out.URL.Host
	}, ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
		http.Error(w, "bad gateway", http.StatusBadGateway)
	}}
	if jupyter {
		g.forwardJupyter(p, r, id)
	}
	p.ServeHTTP(w, r)
}

// admit checks token and Origin.
func (g *Google) admit(r *http.Request, id string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	m := g.vms[id]
	if m == nil || m.token == "" || r.Header.Get("X-Colab-Runtime-Proxy-Token") != m.token {
		return false
	}
	if origin := r.Header.Get("Origin"); origin != "" && origin != "https://colab.research.google.com" {
		return false
	}
	if r.Header.Get("Upgrade") != "" {
		g.sockets[r.Context().Value(connKey{}).(net.Conn)] = true
	}
	return true
}

// forwardJupyter sends a request to the real Jupyter server, and notes what it leaves on the VM.
func (g *Google) forwardJupyter(p *httputil.ReverseProxy, r *http.Request, id string) {
	server := g.jupyter()
	rewrite := p.Rewrite
	p.Rewrite = func(p *httputil.ProxyRequest) {
		rewrite(p)
		p.Out.URL.Host, p.Out.Host = server.host, server.host
		p.Out.Header.Set("Authorization", "token "+server.token)
	}
	if file, ok := strings.CutPrefix(r.URL.Path, "/api/contents"); ok && r.Method == http.MethodPut {
		g.note(id, func(m *machine) { m.folders = append(m.folders, path.Dir(file)) })
	}
	if r.Method == http.MethodPost && r.URL.Path == "/api/kernels" {
		p.ModifyResponse = func(res *http.Response) error {
			text, err := io.ReadAll(res.Body)
			var kernel struct{ ID string }
			if json.Unmarshal(text, &kernel) == nil && kernel.ID != "" {
				g.note(id, func(m *machine) { m.kernels = append(m.kernels, kernel.ID) })
			}
			res.Body = io.NopCloser(bytes.NewReader(text))
			return err
		}
	}
}

func (g *Google) note(id string, f func(*machine)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if m := g.vms[id]; m != nil {
		f(m)
	}
}

// ExpireToken makes a VM's current token invalid before its time.
func (g *Google) ExpireToken(id string) { g.note(id, func(m *machine) { m.token = "" }) }

// DropSockets breaks all WebSockets.
func (g *Google) DropSockets() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.sockets {
		c.Close()
	}
	clear(g.sockets)
}

// End ends a VM, its kernels, and the programs that were uploaded to it.
func (g *Google) End(id string) {
	g.mu.Lock()
	m := g.vms[id]
	delete(g.vms, id)
	g.order = slices.DeleteFunc(g.order, func(each string) bool { return each == id })
	g.mu.Unlock()
	if m == nil {
		return
	}
	for _, k := range m.kernels {
		g.jupyter().endKernel(k)
	}
	endPrograms(m.folders)
}
