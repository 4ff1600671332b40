package config

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"colabrelay/relay/config/configtest"
	"colabrelay/relay/transfer"
	"colabrelay/shared/auth"
)

func TestLoad(t *testing.T) {
	dir := configtest.Home(t)
	secret := strings.Repeat("s", auth.MinSecretBytes)
	for _, c := range []struct {
		name  string
		env   []string
		fault bool
		hold  time.Duration
		save  string
	}{
		{name: "nothing set", hold: 45 * time.Second, save: filepath.Join(dir, "colab_results")},
		{name: "hold and home", env: []string{"RELAY_HOLD", "230s", "LOCAL_SAVE_DIR", "~/a/b"}, hold: 230 * time.Second, save: filepath.Join(dir, "a", "b")},
		{name: "a shell's variable", env: []string{"LOCAL_SAVE_DIR", "$HOME/a"}, fault: true},
		{name: "hold too long", env: []string{"RELAY_HOLD", "231s"}, fault: true},
		{name: "text limit too small", env: []string{"RELAY_TEXT_LIMIT", "999"}, fault: true},
		{name: "pictures no number", env: []string{"RELAY_PICTURES", "0.5"}, fault: true},
		{name: "pictures by size", env: []string{"RELAY_PICTURES", "100"}, hold: 45 * time.Second, save: filepath.Join(dir, "colab_results")},
		{name: "keep no number", env: []string{"RELAY_KEEP_TUNNEL_MB", "NaN"}, fault: true},
		{name: "runtime", env: []string{"COLAB_URL", "https://x.example", "COLAB_SECRET", secret}, hold: 45 * time.Second, save: filepath.Join(dir, "colab_results")},
		{name: "URL without secret", env: []string{"COLAB_URL", "https://x.example"}, fault: true},
		{name: "short secret", env: []string{"COLAB_URL", "https://x.example", "COLAB_SECRET", "short"}, fault: true},
	} {
		got := Load(Settings{Getenv: configtest.Environ(c.env...)})
		if c.fault != (len(got.Problems) > 0) {
			t.Errorf("%s: %v", c.name, got.Problems)
		}
		if !c.fault && (got.Hold != c.hold || got.SaveDir != c.save) {
			t.Errorf("%s: %s %s", c.name, got.Hold, got.SaveDir)
		}
	}
}

// Uploads never send the files that settings name, nor the history of all runtimes.
func TestUploadsNeverSendTheRelaysOwnFiles(t *testing.T) {
	dir := configtest.Home(t)
	s := Settings{Getenv: configtest.Environ("COLAB_SECRET_FILE", "~/secret", "NGROK_AUTHTOKEN_FILE", filepath.Join(dir, "token"), "RELAY_UPLOAD_ALLOW", dir)}
	g, err := newGuard(s, filepath.Join(dir, "checkpoints"))
	must(t, err)
	for _, name := range []string{filepath.Join(dir, "secret"), filepath.Join(dir, "token"), filepath.Join(ownDir("history"), "run.ndjson"), filepath.Join(ownDir("vms"), "vms.json"), filepath.Join(dir, "checkpoints", "a")} {
		must(t, os.MkdirAll(filepath.Dir(name), 0o700))
		must(t, os.WriteFile(name, []byte("secret"), 0o600))
		if err := transfer.CheckUpload(t.Context(), name, g); !errors.Is(err, transfer.ErrGuarded) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTheHostsProjectGetsDownloadsByDefault(t *testing.T) {
	home := configtest.Home(t)
	outside := t.TempDir()
	for _, dir := range []string{"proj/sub", ".cache/host", "proj/.git", "AppData/Local/Host", "Library/Host", "Documents/Library"} {
		must(t, os.MkdirAll(filepath.Join(home, dir), 0o700))
	}
	for link, target := range map[string]string{"out": outside, "hidden": ".cache/host"} {
		must(t, os.Symlink(target, filepath.Join(home, link)))
	}
	for dir, want := range map[string]bool{
		"proj": true, "proj/sub": true, "Documents/Library": true,
		".": false, "..": false, "/": false, ".cache/host": false, "proj/.git": false, "AppData/Local/Host": false, "Library/Host": false,
		outside: false, "out": false, "hidden": false,
	} {
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(home, dir)
		}
		t.Chdir(dir)
		got := Load(Settings{Getenv: configtest.Environ()})
		if found := slices.Equal(got.DownloadDirs, []string{dir}); found != want || !found && len(got.DownloadDirs) > 0 || got.Err() != nil {
			t.Errorf("in %q: %q, %v; want it %v", dir, got.DownloadDirs, got.Err(), want)
		}
	}
}

// In some containers the home folder is the root, and the host starts relays anywhere.
func TestAHomeThatIsTheRootHasNoProjects(t *testing.T) {
	for _, working := range []string{"/etc", "/", t.TempDir()} {
		if isProject(working, "/") {
			t.Errorf("%q is a project", working)
		}
	}
}

const someToken = "2abcDEFghiJKLmnoPQRstuVWXyz_0123456789ABCDEFGHIJK"

// tokenFile writes a file with these contents and mode, and returns its path.
func tokenFile(t *testing.T, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(path, []byte(text), mode))
	must(t, os.Chmod(path, mode))
	return path
}

func TestNgrok(t *testing.T) {
	for name, c := range map[string]struct {
		env    []string
		token  string
		domain string
		fault  string // part of the error
	}{
		"nothing set":            {},
		"variable":               {env: []string{"NGROK_AUTHTOKEN", someToken}, token: someToken},
		"file":                   {env: []string{"NGROK_AUTHTOKEN_FILE", tokenFile(t, someToken+"\n", 0o600)}, token: someToken},
		"domain as a URL":        {env: []string{"NGROK_DOMAIN", "https://my-name.ngrok-free.app/"}, domain: "my-name.ngrok-free.app"},
		"domain with a quote":    {env: []string{"NGROK_DOMAIN", `a".b`}, fault: "NGROK_DOMAIN"},
		"token of two words":     {env: []string{"NGROK_AUTHTOKEN", "secret words"}, fault: "NGROK_AUTHTOKEN"},
		"file that others read":  {env: []string{"NGROK_AUTHTOKEN_FILE", tokenFile(t, someToken, 0o640)}, fault: "chmod 600"},
		"file with another text": {env: []string{"NGROK_AUTHTOKEN_FILE", tokenFile(t, "authtoken: secret", 0o600)}, fault: "NGROK_AUTHTOKEN_FILE"},
	} {
		token, domain, err := Ngrok(Settings{Getenv: configtest.Environ(c.env...)})
		switch {
		case c.fault == "" && (err != nil || token != c.token || domain != c.domain):
			t.Errorf("%s: %q, %q, %v", name, token, domain, err)
		case c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault) || strings.Contains(err.Error(), "secret")):
			t.Errorf("%s: error %v, want %q and no content of the file", name, err, c.fault)
		}
	}
}

func TestTheListOfSettingsIsThatOfTheSampleFile(t *testing.T) {
	text, err := os.ReadFile("../../config/relay.env")
	must(t, err)
	var sample, listed []string
	for _, match := range regexp.MustCompile(`(?m)^([A-Z_]+)=`).FindAllStringSubmatch(string(text), -1) {
		sample = append(sample, match[1])
	}
	for _, s := range All {
		listed = append(listed, s.Variable)
	}
	slices.Sort(sample)
	slices.Sort(listed)
	if !slices.Equal(sample, listed) {
		t.Errorf("config/relay.env has %v\nAll in settings.go has %v", sample, listed)
	}
}

// must ends the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
