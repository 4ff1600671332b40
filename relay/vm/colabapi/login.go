package colabapi

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"colabrelay/relay/vm"
	"colabrelay/shared/bounded"
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
