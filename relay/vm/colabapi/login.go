package colabapi

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/endpoints"

	"colabrelay/relay/browser"
	"colabrelay/relay/client"
	"colabrelay/relay/plain"
	"colabrelay/relay/vm"
	"colabrelay/shared/bounded"
	"colabrelay/shared/keep"
	"colabrelay/shared/lazy"
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
	Transport  http.RoundTripper // nil for the relay's usual one
	// Open opens the page where the person allows access. Show prints its address, for a
	// person whose browser did not open; it contains no secret. Both may be nil.
	Open func(ctx context.Context, url string) error
	Show func(url string)
}

// Login lets a person log in and saves the login, or saves that application default
// credentials are to be used, after it has seen that they work.
func Login(ctx context.Context, r LoginRequest) error {
	if r.Transport == nil {
		t := client.NewTransport()
		defer t.CloseIdleConnections()
		r.Transport = t
	}
	logIn := browserLogin
	if r.ClientFile == "" {
		logIn = defaultLogin
	}
	login, err := logIn(ctx, r)
	if err != nil {
		return err
	}
	login.Version = loginVersion
	return keep.WriteJSON(filepath.Join(r.Dir, loginName), login) // readable by this user only
}

// defaultLogin returns the login that names the application default credentials.
func defaultLogin(ctx context.Context, r LoginRequest) (credentials, error) {
	path, err := defaultsFile(r.Getenv)
	if err != nil {
		return credentials{}, fmt.Errorf("find the application default credentials: %v", err)
	}
	c, err := readDefaults(path)
	if err == nil {
		_, err = c.newToken(ctx, r.Transport)
	}
	return credentials{DefaultsFile: path}, err
}

// browserLogin sends the person to Google and returns the login (RFC 8252: loopback redirect;
// RFC 7636: PKCE).
func browserLogin(ctx context.Context, r LoginRequest) (credentials, error) {
	const doing = "log in to Google"
	ctx, cancel := context.WithTimeoutCause(ctx, loginLimit, fmt.Errorf("%s: no answer from the browser in %s: run the command again", doing, loginLimit))
	defer cancel()
	c, err := readClientFile(r.ClientFile)
	if err != nil {
		return c, err
	}
	back := &redirect{rand.Text(), make(chan url.Values, 1)}
	host, stop, err := browser.Serve(back)
	if err != nil {
		return c, fmt.Errorf("%s: %w", doing, err)
	}
	defer stop()
	verifier := oauth2.GenerateVerifier()
	config := c.config()
	config.RedirectURL, config.Scopes = "http://"+host+"/", []string{Scope}
	// Without prompt=consent Google gives a refresh token only at a person's first login.
	page := config.AuthCodeURL(back.state, oauth2.AccessTypeOffline, oauth2.SetAuthURLParam("prompt", "consent"), oauth2.S256ChallengeOption(verifier))
	if r.Show != nil {
		r.Show(page)
	}
	if r.Open != nil {
		if err := r.Open(ctx, page); err != nil && r.Show == nil {
			return c, fmt.Errorf("open the browser: %w", err)
		}
	}
	var got url.Values
	select {
	case got = <-back.answered:
	case <-ctx.Done():
		return c, context.Cause(ctx)
	}
	switch refusal := got.Get("error"); {
	case refusal == "access_denied":
		return c, fmt.Errorf("%w: access to Colab was declined on Google's page: run the login again to try once more; if the page says that the app is not available, add your address as a test user of the Google Cloud project", vm.ErrNotLoggedIn)
	case got.Get("code") == "":
		return c, fmt.Errorf("%w: Google's page answered %q", vm.ErrNotLoggedIn, plain.Clip(refusal, maxCode))
	}
	token, err := config.Exchange(withClient(ctx, r.Transport), got.Get("code"), oauth2.VerifierOption(verifier))
	if err == nil {
		err = checkToken(token)
	}
	if err != nil {
		return c, tokenError(ctx, doing, "the login again", err)
	}
	// A person can untick permissions on Google's page.
	if granted, ok := token.Extra("scope").(string); ok && !slices.Contains(strings.Fields(granted), Scope) {
		return c, fmt.Errorf("%w: access to Colab was not allowed on Google's page: run the login again and leave it ticked", vm.ErrNotLoggedIn)
	}
	if token.RefreshToken == "" {
		return c, fmt.Errorf("%s: the answer has no refresh token: check that the OAuth client has type Desktop app", doing)
	}
	c.RefreshToken = token.RefreshToken
	return c, nil
}

const (
	// loginName is the login file: readable by this user only, because a refresh token is
	// as good as the login itself.
	loginName    = "google-login.json"
	loginVersion = 1
	maxLogin     = 64 << 10 // bytes of a login file, a client file or default credentials
)

// credentials are what gets access tokens. A client file of the Google Cloud console,
// application default credentials and the login file have some of the fields each. The login
// file holds either the result of a login, or the path of application default credentials.
type credentials struct {
	Version      int    `json:"version"` // of the login file
	ClientID     string `json:"client_id,omitempty"`
	ClientSecret string `json:"client_secret,omitempty"` // which Google does not treat as a secret in Desktop clients
	RefreshToken string `json:"refresh_token,omitempty"`
	Project      string `json:"project_id,omitempty"`       // for errors
	QuotaProject string `json:"quota_project_id,omitempty"` // empty unless the token's own project does not count
	DefaultsFile string `json:"application_default_credentials,omitempty"`
}

// loginCommand is what errors tell people to run.
const loginCommand = "`colab-relay vm login --backend api`"

// loadCredentials reads the login file, and the file that it names.
func loadCredentials(dir string) (credentials, error) {
	path := filepath.Join(dir, loginName)
	c, err := keep.File[credentials]{Path: path, What: "the Google login", Max: maxLogin, Version: loginVersion}.Read()
	switch {
	case errors.Is(err, keep.ErrDamaged):
		return c, fmt.Errorf("%w: %v: run %s", vm.ErrNotLoggedIn, err, loginCommand)
	case err != nil:
		return c, fmt.Errorf("%w, or run %s", err, loginCommand)
	case c.Version == 0:
		return c, fmt.Errorf("%w: run %s", vm.ErrNotLoggedIn, loginCommand)
	case c.DefaultsFile != "":
		return readDefaults(c.DefaultsFile)
	}
	return c, nil
}

// readClientFile reads the JSON file of an OAuth client, as the console gives it.
func readClientFile(path string) (credentials, error) {
	fail := func(format string, args ...any) (credentials, error) {
		return credentials{}, fmt.Errorf("OAuth client file %q: %w", path, fmt.Errorf(format, args...))
	}
	text, err := bounded.ReadInput(path, maxLogin)
	if err != nil {
		return fail("%w", err)
	}
	var file struct {
		Installed credentials     `json:"installed"`
		Web       json.RawMessage `json:"web"`
	}
	const how = "create an OAuth client of type Desktop app at https://console.cloud.google.com/auth/clients and download its JSON file"
	err = json.Unmarshal(text, &file)
	c := file.Installed
	switch {
	case err != nil:
		return fail("it is not JSON: %s", how)
	case file.Web != nil:
		return fail("the client has type Web application: %s", how)
	case c.ClientID == "":
		return fail("it has no object \"installed\" with a client_id: %s", how)
	}
	return credentials{ClientID: c.ClientID, ClientSecret: c.ClientSecret, Project: c.Project}, nil
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
func readDefaults(path string) (credentials, error) {
	fail := func(format string, args ...any) (credentials, error) {
		why := fmt.Sprintf(format, args...)
		return credentials{}, fmt.Errorf("%w: the application default credentials at %q %s: run %s, or log in with your own OAuth client: %s with --client FILE", vm.ErrNotLoggedIn, path, why, defaultsCommand, loginCommand)
	}
	text, err := bounded.ReadFile(path, maxLogin)
	if errors.Is(err, fs.ErrNotExist) {
		return fail("do not exist")
	}
	if err != nil {
		return credentials{}, fmt.Errorf("read the application default credentials %q: %v", path, err)
	}
	var file struct {
		Type string `json:"type"`
		credentials
	}
	switch err := json.Unmarshal(text, &file); {
	case err != nil:
		return fail("are not JSON")
	case file.Type != "authorized_user":
		return fail("have type %q, but Colab's VMs belong to a person: only authorized_user works", plain.Line(file.Type))
	case file.ClientID == "" || file.RefreshToken == "":
		return fail("lack a client_id or refresh_token")
	}
	c := file.credentials
	c.Project, c.DefaultsFile = c.QuotaProject, path
	return c, nil
}

const (
	// tokenReserve is how long before its end an access token is renewed, so that it does
	// not end on the way.
	tokenReserve = time.Minute
	// tokenTimeout bounds a request for tokens.
	tokenTimeout = 30 * time.Second
)

// access is an access token, which lives for about an hour, and the projects of its login.
type access struct{ token, project, quotaProject string }

// renewAccess reads the login, which may be a new one, and gets an access token.
func (b *Backend) renewAccess(ctx context.Context) (fresh access, until time.Time, err error) {
	c, err := loadCredentials(b.dir)
	if err != nil {
		return fresh, until, err
	}
	t, err := c.newToken(ctx, b.transport)
	if err != nil {
		return fresh, until, err
	}
	return access{t.AccessToken, c.Project, c.QuotaProject}, t.Expiry.Add(-tokenReserve), nil
}

// config sends secrets to Google's own addresses, whatever a file names: it may come from a
// stranger, who would get the person's login.
func (c credentials) config() *oauth2.Config {
	google := endpoints.Google
	google.AuthStyle = oauth2.AuthStyleInParams
	return &oauth2.Config{ClientID: c.ClientID, ClientSecret: c.ClientSecret, Endpoint: google}
}

// withClient lets oauth2 send requests by a client that follows no redirects, which would carry
// a code or token elsewhere.
func withClient(ctx context.Context, t http.RoundTripper) context.Context {
	return context.WithValue(ctx, oauth2.HTTPClient, &http.Client{
		Transport: client.EndingWithContext(t), Timeout: tokenTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	})
}

// newToken gets an access token. A refresh token that comes with it is not kept: Google's stay
// valid.
func (c credentials) newToken(ctx context.Context, t http.RoundTripper) (*oauth2.Token, error) {
	got, err := c.config().TokenSource(withClient(ctx, t), &oauth2.Token{RefreshToken: c.RefreshToken}).Token()
	if err == nil {
		err = checkToken(got)
	}
	if err != nil {
		again := loginCommand + " with --client FILE"
		if c.DefaultsFile != "" {
			again = defaultsCommand
		}
		return nil, tokenError(ctx, "renew the Google login", again, err)
	}
	return got, nil
}

// tokenPattern is what RFC 6750 allows in a header, and maxToken its length in bytes.
var tokenPattern = lazy.Regexp(`^[A-Za-z0-9._~+/=-]+$`)

const maxToken = 8 << 10

func isToken(text string) bool { return len(text) <= maxToken && tokenPattern().MatchString(text) }

var errTokenForm = errors.New("the login service answered with a token of unknown form")

// checkToken refuses tokens that cannot be sent, and bounds what is believed about their end.
func checkToken(t *oauth2.Token) error {
	if t.Type() != "Bearer" || !isToken(t.AccessToken) {
		return errTokenForm
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
	case errors.Is(err, errTokenForm):
		return fmt.Errorf("%s: %w", doing, err)
	case !ok:
		return fmt.Errorf("%s: no usable answer from Google's login service: check that this computer is online, and try again", doing)
	case refused.ErrorCode == "invalid_grant":
		return fmt.Errorf("%w: Google does not accept the saved login any more: it was revoked, not used for six months, or is older than 7 days while the Google Cloud project's publishing status is Testing; run %s", vm.ErrNotLoggedIn, again)
	case slices.Contains([]string{"invalid_client", "unauthorized_client", "deleted_client"}, refused.ErrorCode):
		return fmt.Errorf("%w: Google does not know the OAuth client any more (%s): make a new one and run %s", vm.ErrNotLoggedIn, refused.ErrorCode, again)
	case refused.ErrorCode != "":
		return fmt.Errorf("%s: Google's login service says %q: try again, or run %s", doing, plain.Clip(refused.ErrorCode, maxCode), again)
	}
	return fmt.Errorf("%s: Google's login service answers HTTP %d: try again in a minute", doing, refused.Response.StatusCode)
}

// maxCode bounds an error code of an answer that is shown, in characters.
const maxCode = 60

// redirect is where Google's page sends the browser back. Every program on this computer, and
// every web page, can send requests there: only one with the state of this login counts, and all
// others change nothing.
type redirect struct {
	state    string
	answered chan url.Values // of size one: one answer only
}

// ServeHTTP is what the browser gets.
func (r *redirect) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodGet || req.URL.Path != "/" {
		http.NotFound(w, req)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	got := req.URL.Query()
	if subtle.ConstantTimeCompare([]byte(got.Get("state")), []byte(r.state)) != 1 {
		http.Error(w, "this is not the answer to the login that waits here", http.StatusBadRequest)
		return
	}
	select {
	case r.answered <- got:
		fmt.Fprintln(w, "Google has answered. Close this page and look at the terminal.")
	default:
		http.Error(w, "the login has been answered already", http.StatusGone)
	}
}
