package colabapi

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/netutil"
	"golang.org/x/oauth2"

	"colabrelay/relay/client"
	"colabrelay/relay/plain"
	"colabrelay/relay/vm"
	"colabrelay/shared/bounded"
	"colabrelay/shared/keep"
)

// Scope is the only permission that a login asks for.
const Scope = "https://www.googleapis.com/auth/colaboratory"

// loginLimit is how long a login waits for the person at the browser.
const loginLimit = 10 * time.Minute

// LoginRequest is what Login needs.
type LoginRequest struct {
	Dir string // folder of the login file
	// ClientFile is the JSON file of the person's own OAuth client of type Desktop app, as the
	// Google Cloud console gives it. Empty uses application default credentials.
	ClientFile string
	Getenv     func(string) string
	// Open opens the page where the person allows access. Show prints its address, for a
	// person whose browser did not open; it contains no secret. Both may be nil.
	Open func(ctx context.Context, url string) error
	Show func(url string)
}

// Login lets a person log in and saves the login, or saves that application default
// credentials are to be used, after it has seen that they work.
func Login(ctx context.Context, r LoginRequest) error {
	google, err := siteOf(r.Getenv)
	if err != nil {
		return err
	}
	transport := google.newTransport()
	defer transport.CloseIdleConnections()
	client := oauthClient(transport)
	if r.ClientFile == "" {
		return loginByDefaults(ctx, r, google, client)
	}
	c, err := readClientFile(r.ClientFile, google)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, loginLimit, fmt.Errorf("log in to Google: no answer from the browser in %s: run the command again", loginLimit))
	defer cancel()
	refreshToken, err := c.authorize(ctx, client, r)
	if err != nil {
		return err
	}
	return login{ClientID: c.ID, ClientSecret: c.Secret, TokenURI: c.TokenURI, RefreshToken: refreshToken, Project: c.Project}.save(r.Dir)
}

func loginByDefaults(ctx context.Context, r LoginRequest, s site, client *http.Client) error {
	path, err := defaultsFile(r.Getenv)
	if err != nil {
		return fmt.Errorf("find the application default credentials: %v", err)
	}
	c, err := readDefaults(path, s)
	if err != nil {
		return err
	}
	if _, err := renew(ctx, client, c); err != nil {
		return err
	}
	return login{DefaultsFile: path}.save(r.Dir)
}

// clientFile is the part of the console's JSON file that matters.
type clientFile struct {
	ID       string `json:"client_id"`
	Secret   string `json:"client_secret"` // which Google does not treat as a secret in Desktop clients
	Project  string `json:"project_id"`
	AuthURI  string `json:"auth_uri"`
	TokenURI string `json:"token_uri"`
}

func readClientFile(path string, s site) (clientFile, error) {
	fail := func(format string, args ...any) (clientFile, error) {
		return clientFile{}, fmt.Errorf("OAuth client file %q: %w", path, fmt.Errorf(format, args...))
	}
	text, err := bounded.ReadInput(path, maxLogin)
	if err != nil {
		return fail("%w", err)
	}
	var file struct {
		Installed *clientFile     `json:"installed"`
		Web       json.RawMessage `json:"web"`
	}
	const how = "create an OAuth client of type Desktop app at https://console.cloud.google.com/auth/clients and download its JSON file"
	if err := json.Unmarshal(text, &file); err != nil {
		return fail("it is not JSON: %s", how)
	}
	c := file.Installed
	switch {
	case c == nil && file.Web != nil:
		return fail("the client has type Web application: %s", how)
	case c == nil:
		return fail("it has no object \"installed\": %s", how)
	case c.ID == "" || c.AuthURI == "" || c.TokenURI == "":
		return fail("it lacks a client_id, auth_uri or token_uri: %s", how)
	}
	if err := s.checkOAuthURL(c.AuthURI, authHosts); err != nil {
		return fail("auth_uri: %w", err)
	}
	if err := s.checkOAuthURL(c.TokenURI, tokenHosts); err != nil {
		return fail("token_uri: %w", err)
	}
	return *c, nil
}

// authorize sends the person to Google and returns the refresh token (RFC 8252: loopback
// redirect; RFC 7636: PKCE).
func (c clientFile) authorize(ctx context.Context, client *http.Client, r LoginRequest) (string, error) {
	state := rand.Text()
	back, err := listenForRedirect(state)
	if err != nil {
		return "", err
	}
	defer back.close()
	verifier := oauth2.GenerateVerifier()
	config := &oauth2.Config{
		ClientID: c.ID, ClientSecret: c.Secret, RedirectURL: back.url, Scopes: []string{Scope},
		Endpoint: oauth2.Endpoint{AuthURL: c.AuthURI, TokenURL: c.TokenURI, AuthStyle: oauth2.AuthStyleInParams},
	}
	// Without prompt=consent Google gives a refresh token only at a person's first login.
	page := config.AuthCodeURL(state, oauth2.AccessTypeOffline, oauth2.SetAuthURLParam("prompt", "consent"), oauth2.S256ChallengeOption(verifier))
	if r.Show != nil {
		r.Show(page)
	}
	if r.Open != nil {
		if err := r.Open(ctx, page); err != nil && r.Show == nil {
			return "", fmt.Errorf("open the browser: %w", err)
		}
	}
	authorization, err := back.wait(ctx)
	if err != nil {
		return "", err
	}
	const doing = "log in to Google"
	token, err := config.Exchange(context.WithValue(ctx, oauth2.HTTPClient, client), authorization, oauth2.VerifierOption(verifier))
	if err != nil {
		return "", tokenError(ctx, doing, "the login again", err)
	}
	if err := checkToken(token); err != nil {
		return "", fmt.Errorf("%s: %w", doing, err)
	}
	// A person can untick permissions on Google's page.
	if granted, ok := token.Extra("scope").(string); ok && !slices.Contains(strings.Fields(granted), Scope) {
		return "", fmt.Errorf("%w: access to Colab was not allowed on Google's page: run the login again and leave it ticked", vm.ErrNotLoggedIn)
	}
	if token.RefreshToken == "" {
		return "", errors.New("log in to Google: the answer has no refresh token: check that the OAuth client has type Desktop app")
	}
	return token.RefreshToken, nil
}

const (
	// loginName is the login file: readable by this user only, because a refresh token is
	// as good as the login itself.
	loginName    = "google-login.json"
	loginVersion = 1
	maxLogin     = 64 << 10 // bytes of a login file, a client file or default credentials
)

// credentials are what gets access tokens.
type credentials struct {
	clientID, clientSecret, refreshToken, tokenURL string
	quotaProject                                   string // empty unless the token's own project does not count
	project                                        string // for errors; may be empty
	again                                          string // the command that makes them anew
}

// login is the login file. It holds either the result of a login, or the path of application
// default credentials.
type login struct {
	Version      int    `json:"version"`
	ClientID     string `json:"client_id,omitempty"`
	ClientSecret string `json:"client_secret,omitempty"`
	TokenURI     string `json:"token_uri,omitempty"`
	RefreshToken string `json:"refresh_token,omitempty"`
	Project      string `json:"project_id,omitempty"`
	DefaultsFile string `json:"application_default_credentials,omitempty"`
}

// loginCommand is what errors tell people to run.
const loginCommand = "`colab-relay vm login --backend api`"

// loadCredentials reads the login file, and the file that it names.
func loadCredentials(dir string, s site) (credentials, error) {
	path := filepath.Join(dir, loginName)
	text, err := bounded.ReadFile(path, maxLogin)
	if errors.Is(err, fs.ErrNotExist) {
		return credentials{}, fmt.Errorf("%w: run %s", vm.ErrNotLoggedIn, loginCommand)
	}
	if err != nil {
		return credentials{}, fmt.Errorf("read the Google login %q: %v", path, err)
	}
	var l login
	if err := json.Unmarshal(text, &l); err != nil || l.Version < 1 {
		return credentials{}, fmt.Errorf("%w: the login file %q is damaged: run %s", vm.ErrNotLoggedIn, path, loginCommand)
	}
	if l.Version > loginVersion {
		return credentials{}, fmt.Errorf("the login file %q is one of a newer relay: use that, or run %s", path, loginCommand)
	}
	if l.DefaultsFile != "" {
		return readDefaults(l.DefaultsFile, s)
	}
	if err := s.checkOAuthURL(l.TokenURI, tokenHosts); err != nil {
		return credentials{}, fmt.Errorf("%w: the token address in %q is wrong: %v", vm.ErrNotLoggedIn, path, err)
	}
	return credentials{
		clientID: l.ClientID, clientSecret: l.ClientSecret, refreshToken: l.RefreshToken, tokenURL: l.TokenURI,
		project: l.Project, again: loginCommand + " with --client FILE",
	}, nil
}

// save writes the login file, readable by this user only.
func (l login) save(dir string) error {
	l.Version = loginVersion
	return keep.WriteJSON(filepath.Join(dir, loginName), l)
}

// defaultsFile returns the path of application default credentials: the one that the
// environment names, else gcloud's well-known one.
func defaultsFile(getenv func(string) string) (string, error) {
	if path := getenv("GOOGLE_APPLICATION_CREDENTIALS"); path != "" {
		return filepath.Abs(path)
	}
	const name = "application_default_credentials.json"
	if dir := getenv("CLOUDSDK_CONFIG"); dir != "" {
		return filepath.Abs(filepath.Join(dir, name))
	}
	if runtime.GOOS == "windows" {
		return filepath.Join(getenv("APPDATA"), "gcloud", name), nil
	}
	home, err := os.UserHomeDir()
	return filepath.Join(home, ".config", "gcloud", name), err
}

// defaultsCommand makes application default credentials that include Colab.
const defaultsCommand = "`gcloud auth application-default login --scopes=openid,https://www.googleapis.com/auth/userinfo.email,https://www.googleapis.com/auth/cloud-platform,https://www.googleapis.com/auth/colaboratory`"

// readDefaults reads application default credentials.
func readDefaults(path string, s site) (credentials, error) {
	text, err := bounded.ReadFile(path, maxLogin)
	if errors.Is(err, fs.ErrNotExist) {
		return credentials{}, fmt.Errorf("%w: there are no application default credentials at %q: run %s, or log in with your own OAuth client: %s with --client FILE", vm.ErrNotLoggedIn, path, defaultsCommand, loginCommand)
	}
	if err != nil {
		return credentials{}, fmt.Errorf("read the application default credentials %q: %v", path, err)
	}
	var file struct {
		Type         string `json:"type"`
		ClientID     string `json:"client_id"`
		ClientSecret string `json:"client_secret"`
		RefreshToken string `json:"refresh_token"`
		QuotaProject string `json:"quota_project_id"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return credentials{}, fmt.Errorf("%w: the application default credentials at %q are not JSON", vm.ErrNotLoggedIn, path)
	}
	if file.Type != "authorized_user" {
		return credentials{}, fmt.Errorf("%w: the application default credentials at %q have type %q, but Colab's VMs belong to a person: only authorized_user works; run %s, or log in with your own OAuth client: %s with --client FILE", vm.ErrNotLoggedIn, path, plain.Line(file.Type), defaultsCommand, loginCommand)
	}
	if file.ClientID == "" || file.RefreshToken == "" {
		return credentials{}, fmt.Errorf("%w: the application default credentials at %q lack a client_id or refresh_token: run %s", vm.ErrNotLoggedIn, path, defaultsCommand)
	}
	return credentials{
		clientID: file.ClientID, clientSecret: file.ClientSecret, refreshToken: file.RefreshToken, tokenURL: s.tokenURL(),
		quotaProject: file.QuotaProject, project: file.QuotaProject, again: defaultsCommand,
	}, nil
}

const (
	// tokenReserve is how long before its end an access token is renewed, so that it does
	// not end on the way.
	tokenReserve = time.Minute
	// tokenTimeout bounds a request for tokens.
	tokenTimeout = 30 * time.Second
)

// access is an access token, which lives for about an hour, and the project whose quota counts.
type access struct {
	token        string
	quotaProject string
}

// tokens keeps the access token of a login in memory.
type tokens struct {
	load func() (credentials, error)
	http *http.Client
	turn chan struct{} // contains one element while a call reads or renews what follows

	// Only the owner of turn changes these.
	from    credentials
	current access
	until   time.Time // by this computer's clock; only durations are compared with Google's

	mu   sync.Mutex
	name string // of the project, for errors
}

func newTokens(load func() (credentials, error), transport http.RoundTripper) *tokens {
	return &tokens{load: load, http: oauthClient(transport), turn: make(chan struct{}, 1)}
}

// oauthClient follows no redirects, which would carry a code or token elsewhere.
func oauthClient(transport http.RoundTripper) *http.Client {
	return &http.Client{
		Transport: client.EndingWithContext(transport), Timeout: tokenTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// get returns an access token other than stale, renewed if needed. Many callers of an
// expired one cause one renewal.
func (t *tokens) get(ctx context.Context, stale string) (access, error) {
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return access{}, context.Cause(ctx)
	}
	if t.current.token != "" && t.current.token != stale && time.Until(t.until) > tokenReserve {
		return t.current, nil
	}
	if t.from.refreshToken == "" || stale != "" { // a new login may have replaced the old one
		from, err := t.load()
		if err != nil {
			return access{}, err
		}
		t.from = from
		t.setProject(from.project)
	}
	fresh, err := renew(ctx, t.http, t.from)
	if err != nil {
		t.from = credentials{} // the next call reads the login again
		return access{}, err
	}
	t.current, t.until = access{fresh.AccessToken, t.from.quotaProject}, fresh.Expiry
	return t.current, nil
}

func (t *tokens) setProject(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.name = name
}

// project returns the login's project, for errors; empty if unknown.
func (t *tokens) project() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.name
}

func (c credentials) config() *oauth2.Config {
	return &oauth2.Config{ClientID: c.clientID, ClientSecret: c.clientSecret, Endpoint: oauth2.Endpoint{TokenURL: c.tokenURL, AuthStyle: oauth2.AuthStyleInParams}}
}

// renew gets an access token for a refresh token. A refresh token that comes with it is not
// kept: Google's stay valid.
func renew(ctx context.Context, client *http.Client, from credentials) (*oauth2.Token, error) {
	ctx = context.WithValue(ctx, oauth2.HTTPClient, client)
	got, err := from.config().TokenSource(ctx, &oauth2.Token{RefreshToken: from.refreshToken}).Token()
	if err != nil {
		return nil, tokenError(ctx, "renew the Google login", from.again, err)
	}
	return got, checkToken(got)
}

// tokenPattern is what RFC 6750 allows in a header, and maxToken its length in bytes.
var tokenPattern = regexp.MustCompile(`^[A-Za-z0-9._~+/=-]+$`)

const maxToken = 8 << 10

func isToken(text string) bool { return len(text) <= maxToken && tokenPattern.MatchString(text) }

// checkToken refuses tokens that cannot be sent, and ones that say nothing about their end.
func checkToken(t *oauth2.Token) error {
	if t.Type() != "Bearer" || !isToken(t.AccessToken) {
		return errors.New("the login service answered with a token of unknown form")
	}
	if t.Expiry.IsZero() || time.Until(t.Expiry) > 24*time.Hour {
		t.Expiry = time.Now().Add(30 * time.Minute)
	}
	return nil
}

// tokenError returns the error of a request for tokens. It contains no part of the answer
// but its error code.
func tokenError(ctx context.Context, doing, again string, err error) error {
	refused, ok := errors.AsType[*oauth2.RetrieveError](err)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", doing, context.Cause(ctx))
	case !ok:
		return fmt.Errorf("%s: no usable answer from Google's login service: check that this computer is online, and try again", doing)
	case refused.ErrorCode == "invalid_grant":
		return fmt.Errorf("%w: Google does not accept the saved login any more: it was revoked, not used for six months, or is older than 7 days while the Google Cloud project's publishing status is Testing; run %s", vm.ErrNotLoggedIn, again)
	case refused.ErrorCode == "invalid_client", refused.ErrorCode == "unauthorized_client", refused.ErrorCode == "deleted_client":
		return fmt.Errorf("%w: Google does not know the OAuth client any more (%s): make a new one and run %s", vm.ErrNotLoggedIn, refused.ErrorCode, again)
	case refused.ErrorCode != "":
		return fmt.Errorf("%s: Google's login service says %q: try again, or run %s", doing, code(refused.ErrorCode), again)
	}
	return fmt.Errorf("%s: Google's login service answers HTTP %d: try again in a minute", doing, refused.Response.StatusCode)
}

// code bounds an error code of an answer.
func code(text string) string { return plain.Line(text[:min(len(text), 60)]) }

// maxVisitors bounds the connections that strangers on this computer hold open; further ones
// wait in the system's queue until one ends, in at most 5 seconds.
const maxVisitors = 16

// redirect is the listener on loopback to which Google's page sends the browser back. Every
// program on this computer, and every web page, can send requests there: only one with the
// state of this login counts, and all others change nothing.
type redirect struct {
	url      string // that Google sends the browser to
	host     string
	state    string
	server   *http.Server
	answered chan outcome // of size one: one answer only
	served   chan struct{}

	once sync.Once
}

type outcome struct {
	code string
	err  error
}

func listenForRedirect(state string) (*redirect, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("log in to Google: listen on this computer: %v", err)
	}
	host := l.Addr().String()
	r := &redirect{url: "http://" + host + "/", host: host, state: state, answered: make(chan outcome, 1), served: make(chan struct{})}
	r.server = &http.Server{
		Handler: r, ReadTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second, IdleTimeout: time.Second,
		MaxHeaderBytes: 16 << 10, ErrorLog: log.New(io.Discard, "", 0),
	}
	go func() {
		defer close(r.served)
		_ = r.server.Serve(netutil.LimitListener(l, maxVisitors))
	}()
	return r, nil
}

func (r *redirect) close() {
	// The answer to the browser is still on its way; strangers' connections end in a second.
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if r.server.Shutdown(ctx) != nil {
		_ = r.server.Close()
	}
	<-r.served
}

// wait returns the authorization code.
func (r *redirect) wait(ctx context.Context) (string, error) {
	select {
	case got := <-r.answered:
		return got.code, got.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// ServeHTTP implements http.Handler. What it refuses, it refuses before it looks further.
func (r *redirect) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", "default-src 'none'")
	h.Set("Connection", "close")
	if req.Host != r.host { // another name for this address: a page that rebinds its DNS name
		http.Error(w, "wrong host", http.StatusMisdirectedRequest)
		return
	}
	if req.Method != http.MethodGet {
		http.Error(w, "only GET is answered", http.StatusMethodNotAllowed)
		return
	}
	if req.URL.Path != "/" {
		http.NotFound(w, req)
		return
	}
	got, err := readRedirect(req.URL.RawQuery, r.state)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	first := false
	r.once.Do(func() { first = true; r.answered <- got })
	if !first {
		http.Error(w, "the login has been answered already", http.StatusGone)
		return
	}
	message := "Google has answered. Close this page and look at the terminal."
	if got.err != nil {
		message = "Access was not allowed. Close this page and look at the terminal."
	}
	h.Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = fmt.Fprintln(w, message)
}

// readRedirect reads the answer of Google's page. An error means that the request is not that
// answer, and changes nothing.
func readRedirect(query, state string) (outcome, error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return outcome{}, errors.New("the query cannot be read")
	}
	for _, all := range values {
		if len(all) != 1 {
			return outcome{}, errors.New("a parameter is given twice")
		}
	}
	if subtle.ConstantTimeCompare([]byte(values.Get("state")), []byte(state)) != 1 {
		return outcome{}, errors.New("this is not the answer to the login that waits here")
	}
	authorization, refusal := values.Get("code"), values.Get("error")
	switch {
	case (authorization == "") == (refusal == ""):
		return outcome{}, errors.New("a code or an error is needed")
	case refusal == "access_denied":
		return outcome{err: fmt.Errorf("%w: access to Colab was declined on Google's page: run the login again to try once more; if the page says that the app is not available, add your address as a test user of the Google Cloud project", vm.ErrNotLoggedIn)}, nil
	case refusal != "":
		return outcome{err: fmt.Errorf("%w: Google's page answered %q", vm.ErrNotLoggedIn, code(refusal))}, nil
	}
	return outcome{code: authorization}, nil
}
