package colabapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"sync"
	"time"

	"golang.org/x/oauth2"

	"colabrelay/relay/client"
	"colabrelay/relay/plain"
	"colabrelay/relay/vm"
)

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
