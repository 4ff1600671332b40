package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/executor/tunnel"
)

const longSecret = "a secret of exactly 32 bytes....."

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func TestAllFaultsOfTheSettingsAreToldTogether(t *testing.T) {
	_, err := parseConfig([]string{
		"--listen", "nowhere", "--tunnel", "ssh", "--workdir", "/no/such/folder", "--allow-path", "/nor/this", "extra",
	}, env(envSecret, "short"), io.Discard)
	if err == nil {
		t.Fatal("all of it passed")
	}
	for _, part := range []string{`"extra"`, "--listen", "--tunnel ssh: not in this version", "/no/such/folder", "/nor/this", envSecret} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("faults do not tell of %s:\n%v", part, err)
		}
	}
}

func TestEachFaultOfTheSettings(t *testing.T) {
	dir := t.TempDir()
	for name, tc := range map[string]struct {
		args []string
		env  []string
		want string
	}{
		"unknown flag":           {args: []string{"--secret", longSecret}, want: "-secret"},
		"port too high":          {args: []string{"--listen", "127.0.0.1:65536"}, want: "--listen"},
		"unknown tunnel":         {args: []string{"--tunnel", "carrier-pigeon"}, want: "ngrok or none"},
		"cloudflared":            {args: []string{"--tunnel", "cloudflared"}, want: "not in this version"},
		"ngrok without a token":  {args: []string{"--tunnel", "ngrok"}, want: envNgrokToken},
		"domain without ngrok":   {args: []string{"--domain", "a.ngrok.app"}, want: "--domain"},
		"domain that is none":    {args: []string{"--domain", "http://"}, env: []string{envNgrokToken, "t"}, want: "domain"},
		"two secrets":            {env: []string{envSecret, longSecret, envSecretFile, "x"}, want: "both"},
		"short secret":           {env: []string{envSecret, "short"}, want: "32"},
		"missing secret file":    {env: []string{envSecretFile, filepath.Join(dir, "none")}, want: envSecretFile},
		"folder as secret file":  {env: []string{envSecretFile, dir}, want: envSecretFile},
		"a file as the workdir":  {args: []string{"--workdir", "config_test.go"}, want: "--workdir"},
		"missing CA certificate": {env: []string{envNgrokToken, "t", envNgrokCA, filepath.Join(dir, "none")}, want: "certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseConfig(tc.args, env(tc.env...), io.Discard)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("error is %v, want it to tell of %q", err, tc.want)
			}
			if strings.Contains(err.Error(), longSecret) && name != "unknown flag" {
				t.Errorf("error shows the secret: %v", err)
			}
		})
	}
}

func TestDefaultsOfTheSettings(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	c, err := parseConfig(nil, env(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if c.listen != "127.0.0.1:8000" || c.tunnel.Kind != tunnel.KindNone || !c.generated || c.secret.IsZero() {
		t.Errorf("settings are %+v", c)
	}
	if want := filepath.Join(c.workDir, ".colab-relay"); c.stateDir != want {
		t.Errorf("state dir is %q, want %q", c.stateDir, want)
	}
	if real, _ := filepath.EvalSymlinks(dir); c.workDir != dir && c.workDir != real && !isDir("/content") && !isDir("/kaggle/working") {
		t.Errorf("workdir is %q, want %q", c.workDir, dir)
	}
	c, err = parseConfig(nil, env(envNgrokToken, "token"), io.Discard)
	if err != nil || c.tunnel.Kind != tunnel.KindNgrok {
		t.Errorf("with a token the tunnel is %q: %v", c.tunnel.Kind, err)
	}
}

func TestTheSecretComesFromItsVariableOrFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(longSecret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, getenv := range map[string]func(string) string{
		"variable": env(envSecret, longSecret), "file": env(envSecretFile, file),
	} {
		c, err := parseConfig(nil, getenv, io.Discard)
		if err != nil || c.secret.Reveal() != longSecret || c.generated {
			t.Errorf("%s: generated %v, %v", name, c.generated, err)
		}
		if text := fmt.Sprintf("%v %+v %#v", c, c, c); strings.Contains(text, longSecret) {
			t.Errorf("%s: printed settings show the secret", name)
		}
	}
}

func TestEachRunMakesAnotherSecret(t *testing.T) {
	a, _ := parseConfig(nil, env(), io.Discard)
	b, _ := parseConfig(nil, env(), io.Discard)
	if a.secret.Reveal() == b.secret.Reveal() {
		t.Fatal("two generated secrets are the same")
	}
}

func TestHelpNamesEveryFlag(t *testing.T) {
	var out strings.Builder
	if _, err := parseConfig([]string{"-h"}, env(), &out); !errors.Is(err, flag.ErrHelp) {
		t.Fatal(err)
	}
	for _, name := range []string{"listen", "tunnel", "domain", "workdir", "state-dir", "python", "allow-path", "ready-file"} {
		if !strings.Contains(out.String(), "--"+name) {
			t.Errorf("help does not tell of --%s", name)
		}
	}
}
