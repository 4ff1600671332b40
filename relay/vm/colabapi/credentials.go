package colabapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"colabrelay/relay/plain"
	"colabrelay/relay/vm"
	"colabrelay/shared/bounded"
	"colabrelay/shared/keep"
)

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
