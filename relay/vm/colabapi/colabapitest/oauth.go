package colabapitest

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"colabrelay/relay/vm/colabapi"
)

// clientID is the id of the OAuth client.
const clientID = "123-test.apps.googleusercontent.com"

// account is a person's Google account and the OAuth client that asks for access to it.
type account struct {
	google       *Google
	clientSecret string

	mu      sync.Mutex
	grants  map[string]grant // by code
	refresh map[string]bool  // refresh tokens that are valid
	access  map[string]bool  // access tokens that are valid
}

type grant struct{ challenge, redirect string }

func newAccount(g *Google) *account {
	return &account{google: g, clientSecret: g.newSecret("GOCSPX-"), grants: map[string]grant{}, refresh: map[string]bool{}, access: map[string]bool{}}
}

// ClientFile writes the JSON file of a Desktop client and returns its path. The relay is to use
// Google's own addresses, whatever the file names.
func (g *Google) ClientFile(t testing.TB) string {
	return g.write(t, "client.json", map[string]any{"installed": map[string]any{
		"client_id": clientID, "client_secret": g.account.clientSecret, "project_id": "my-project",
		"auth_uri": "https://a.example/auth", "token_uri": "https://a.example/token", "redirect_uris": []string{"http://localhost"},
	}})
}

// DefaultsFile writes application default credentials of a type, such as authorized_user.
func (g *Google) DefaultsFile(t testing.TB, kind string) string {
	token := g.newSecret("1//")
	g.account.mu.Lock()
	g.account.refresh[token] = true
	g.account.mu.Unlock()
	return g.write(t, "application_default_credentials.json", map[string]any{
		"type": kind, "client_id": clientID, "client_secret": g.account.clientSecret, "refresh_token": token, "quota_project_id": "quota-project",
	})
}

func (g *Google) write(t testing.TB, name string, content any) string {
	t.Helper()
	text, err := json.Marshal(content)
	path := filepath.Join(t.TempDir(), name)
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Login logs in with the client file, as a person would, and returns the login's folder.
func (g *Google) Login(t testing.TB) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := colabapi.Login(t.Context(), colabapi.LoginRequest{Dir: dir, ClientFile: g.ClientFile(t), Transport: g, Open: g.Approve}); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Backend returns a backend that is logged in.
func (g *Google) Backend(t testing.TB) *colabapi.Backend {
	t.Helper()
	b := colabapi.New(colabapi.Config{Dir: g.Login(t), Transport: g})
	t.Cleanup(b.Close)
	return b
}

// Approve is the browser of a person who allows access at the page with that URL.
func (g *Google) Approve(ctx context.Context, page string) error { return g.visit(ctx, page) }

// Decline is the browser of a person who does not.
func (g *Google) Decline(ctx context.Context, page string) error {
	return g.visit(ctx, page+"&decline=1")
}

// visit follows redirects as a browser does.
func (g *Google) visit(ctx context.Context, page string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, page, nil)
	if err != nil {
		return err
	}
	t := &http.Transport{DisableKeepAlives: true}
	t.RegisterProtocol("https", g)
	res, err := (&http.Client{Transport: t}).Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("the browser shows HTTP %d: %s", res.StatusCode, text)
	}
	return err
}

// page is Google's consent page. It checks what Google checks.
func (a *account) page(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	back, err := url.Parse(q.Get("redirect_uri"))
	switch {
	case err != nil || back.Scheme != "http" || back.Hostname() != "127.0.0.1" || back.Port() == "":
		err = errors.New("redirect_uri_mismatch")
	case q.Get("client_id") != clientID:
		err = errors.New("invalid_client")
	case q.Get("response_type") != "code" || q.Get("scope") != colabapi.Scope || q.Get("access_type") != "offline" || q.Get("prompt") != "consent":
		err = errors.New("invalid_request")
	case q.Get("code_challenge_method") != "S256" || len(q.Get("code_challenge")) != 43 || len(q.Get("state")) < 20:
		err = errors.New("invalid_request: PKCE and state are required")
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer := url.Values{"state": {q.Get("state")}}
	if q.Get("decline") != "" {
		answer.Set("error", "access_denied")
	} else {
		code := a.google.newSecret("4/")
		a.mu.Lock()
		a.grants[code] = grant{q.Get("code_challenge"), q.Get("redirect_uri")}
		a.mu.Unlock()
		answer.Set("code", code)
		answer.Set("scope", colabapi.Scope)
	}
	back.RawQuery = answer.Encode()
	http.Redirect(w, r, back.String(), http.StatusFound)
}

// token is the token endpoint.
func (a *account) token(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	answer, refusal := a.grant(r)
	if refusal != "" {
		w.WriteHeader(http.StatusBadRequest)
		answer = map[string]any{"error": refusal, "error_description": "\x1b[31mno"}
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func (a *account) grant(r *http.Request) (answer map[string]any, refusal string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.Method != http.MethodPost || r.PostFormValue("client_id") != clientID || r.PostFormValue("client_secret") != a.clientSecret {
		return nil, "invalid_client"
	}
	access := a.google.newSecret("ya29.")
	answer = map[string]any{"access_token": access, "expires_in": 3600, "token_type": "Bearer", "scope": colabapi.Scope}
	switch r.PostFormValue("grant_type") {
	case "authorization_code":
		code := r.PostFormValue("code")
		g, ok := a.grants[code]
		delete(a.grants, code)
		sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
		if !ok || g.redirect != r.PostFormValue("redirect_uri") || g.challenge != base64.RawURLEncoding.EncodeToString(sum[:]) {
			return nil, "invalid_grant"
		}
		token := a.google.newSecret("1//")
		a.refresh[token] = true
		answer["refresh_token"] = token
	case "refresh_token":
		if !a.refresh[r.PostFormValue("refresh_token")] {
			return nil, "invalid_grant"
		}
	default:
		return nil, "unsupported_grant_type"
	}
	a.access[access] = true
	return answer, ""
}

// accepts reports whether a request has a valid access token.
func (a *account) accepts(r *http.Request) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return ok && a.access[token]
}

// ExpireAccess makes all access tokens invalid before their time.
func (g *Google) ExpireAccess() {
	g.account.mu.Lock()
	defer g.account.mu.Unlock()
	clear(g.account.access)
}
