package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"colabrelay/relay/chunked"
	"colabrelay/relay/config/configtest"
	"colabrelay/relay/transfer"
	"colabrelay/shared/auth"
)

func TestAllWrongSettingsAreReportedTogether(t *testing.T) {
	dir := configtest.Home(t)
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c := Load(Settings{Getenv: configtest.Environ("RELAY_HOLD", "soon", "LOCAL_SAVE_DIR", file, "CHECKPOINT_DIR", filepath.Join(file, "x"), "COLAB_URL", "ftp://x")})
	var all strings.Builder
	for _, err := range c.Problems {
		all.WriteString(err.Error() + "\n")
	}
	for _, want := range []string{"RELAY_HOLD", "LOCAL_SAVE_DIR", "CHECKPOINT_DIR", "COLAB_URL"} {
		if !strings.Contains(all.String(), want) {
			t.Errorf("%s is not in %q", want, all.String())
		}
	}
}

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
		{name: "empty is unset", env: []string{"RELAY_HOLD", "", "LOCAL_SAVE_DIR", "", "COLAB_URL", ""}, hold: 45 * time.Second, save: filepath.Join(dir, "colab_results")},
		{name: "hold and home", env: []string{"RELAY_HOLD", "230s", "LOCAL_SAVE_DIR", "~/a/b"}, hold: 230 * time.Second, save: filepath.Join(dir, "a", "b")},
		{name: "hold too long", env: []string{"RELAY_HOLD", "231s"}, fault: true},
		{name: "hold too short", env: []string{"RELAY_HOLD", "0"}, fault: true},
		{name: "text limit too small", env: []string{"RELAY_TEXT_LIMIT", "999"}, fault: true},
		{name: "text limit too large", env: []string{"RELAY_TEXT_LIMIT", "40001"}, fault: true},
		{name: "text limit in words", env: []string{"RELAY_TEXT_LIMIT", "6k"}, fault: true},
		{name: "hold negative", env: []string{"RELAY_HOLD", "-5s"}, fault: true},
		{name: "keep too often", env: []string{"RELAY_KEEP_EVERY", "999ms"}, fault: true},
		{name: "keep too seldom", env: []string{"RELAY_KEEP_EVERY", "24h1s"}, fault: true},
		{name: "keep for more than all the time", env: []string{"RELAY_KEEP_PERCENT", "100.1"}, fault: true},
		{name: "keep less than nothing", env: []string{"RELAY_KEEP_MB", "-1"}, fault: true},
		{name: "keep more than a file may have", env: []string{"RELAY_KEEP_MB", "4097"}, fault: true},
		{name: "keep no number", env: []string{"RELAY_KEEP_TUNNEL_MB", "NaN"}, fault: true},
		{name: "hold without a unit", env: []string{"RELAY_HOLD", "45"}, fault: true},
		{name: "runtime", env: []string{"COLAB_URL", "https://x.example", "COLAB_SECRET", secret}, hold: 45 * time.Second, save: filepath.Join(dir, "colab_results")},
		{name: "URL without secret", env: []string{"COLAB_URL", "https://x.example"}, fault: true},
		{name: "short secret", env: []string{"COLAB_URL", "https://x.example", "COLAB_SECRET", "short"}, fault: true},
		{name: "no secret file", env: []string{"COLAB_URL", "https://x.example", "COLAB_SECRET_FILE", filepath.Join(dir, "none")}, fault: true},
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

func TestElicit(t *testing.T) {
	configtest.Home(t)
	for text, want := range map[string]bool{"": false, "off": false, "input": true} {
		if got := Load(Settings{Getenv: configtest.Environ("RELAY_ELICIT", text)}); got.Elicit != want || len(got.Problems) > 0 {
			t.Errorf("%q: %v %v", text, got.Elicit, got.Problems)
		}
	}
	for _, text := range []string{"on", "true", "Input", "input "} {
		got := Load(Settings{Getenv: configtest.Environ("RELAY_ELICIT", text)})
		if got.Elicit || len(got.Problems) != 1 || !strings.Contains(got.Err().Error(), "RELAY_ELICIT is") {
			t.Errorf("%q: %v %v", text, got.Elicit, got.Problems)
		}
	}
}

func TestTextLimit(t *testing.T) {
	configtest.Home(t)
	for text, want := range map[string]int{"": 6000, "1000": 1000, "40000": 40_000} {
		if got := Load(Settings{Getenv: configtest.Environ("RELAY_TEXT_LIMIT", text)}); got.TextLimit != want || len(got.Problems) > 0 {
			t.Errorf("%q: %d, %v", text, got.TextLimit, got.Problems)
		}
	}
}

func TestPagePort(t *testing.T) {
	dir := configtest.Home(t)
	for text, want := range map[string]int{"": 0, "0": 0, "1024": 1024, "65535": 65535} {
		got := Load(Settings{Getenv: configtest.Environ("RELAY_PAGE_PORT", text)})
		if got.PagePort != want || len(got.Problems) > 0 || got.PageDir != filepath.Join(dir, "data", "colab-relay", "pages") {
			t.Errorf("%q: %d, %q, %v", text, got.PagePort, got.PageDir, got.Problems)
		}
	}
	for _, text := range []string{"1023", "65536", "-1", "http", "8080 ", "0x2000"} {
		got := Load(Settings{Getenv: configtest.Environ("RELAY_PAGE_PORT", text)})
		if got.PagePort != 0 || len(got.Problems) != 1 || !strings.Contains(got.Err().Error(), "RELAY_PAGE_PORT is") {
			t.Errorf("%q: %d, %v", text, got.PagePort, got.Problems)
		}
	}
}

func TestKeepSettings(t *testing.T) {
	configtest.Home(t)
	if got := Load(Settings{Getenv: configtest.Environ()}).Keep; got != defaultKeep {
		t.Errorf("by default %+v", got)
	}
	got := Load(Settings{Getenv: configtest.Environ("RELAY_KEEP_EVERY", "1s", "RELAY_KEEP_PERCENT", "2.5", "RELAY_KEEP_MB", "0", "RELAY_KEEP_TUNNEL_MB", "1")})
	want := chunked.Keep{Every: time.Second, Percent: 2.5, MaxBytes: 0, TunnelBytes: 1 << 20}
	if got.Keep != want || len(got.Problems) > 0 {
		t.Errorf("%+v %v", got.Keep, got.Problems)
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
