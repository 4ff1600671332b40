package config

import (
	"errors"
	"os"
	"path/filepath"
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
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{filepath.Join(dir, "secret"), filepath.Join(dir, "token"), filepath.Join(ownDir("history"), "run.ndjson"), filepath.Join(ownDir("vms"), "vms.json"), filepath.Join(dir, "checkpoints", "a")} {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte("secret"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := transfer.CheckUpload(t.Context(), name, g); !errors.Is(err, transfer.ErrGuarded) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
