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
		"--listen", "nowhere", "--tunnel", "ssh", "--domain", "a.ngrok.app", "--workdir", "/no/such/folder", "--allow-path", "/nor/this", "extra",
	}, env(envSecret, "short"), io.Discard)
	if err == nil {
		t.Fatal("all of it passed")
	}
	for _, part := range []string{`"extra"`, "--listen", "--tunnel ssh: name the server", "--domain a.ngrok.app", "/no/such/folder", "/nor/this", envSecret} {
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
		"unknown tunnel":         {args: []string{"--tunnel", "carrier-pigeon"}, want: "ngrok, ssh, cloudflared or none"},
		"ssh without a server":   {args: []string{"--tunnel", "ssh"}, want: "--ssh [user@]host[:port]"},
		"ssh not asked for":      {args: []string{"--ssh", "me@host"}, want: "add --tunnel ssh"},
		"ssh flag of another":    {args: []string{"--tunnel", "cloudflared", "--ssh-accept-new"}, want: "--ssh-accept-new"},
		"ssh port too high":      {args: []string{"--tunnel", "ssh", "--ssh", "me@host:65536"}, want: "host[:port]"},
		"ssh remote of words":    {args: []string{"--tunnel", "ssh", "--ssh", "me@host", "--ssh-remote", "any"}, want: "[bind:]port"},
		"ssh url of another way": {args: []string{"--tunnel", "ssh", "--ssh", "me@host", "--ssh-url", "ftp://host"}, want: "ssh url"},
		"missing ssh key":        {args: []string{"--tunnel", "ssh", "--ssh", "me@host", "--ssh-key", filepath.Join(dir, "none")}, want: "ssh key"},
		"a range that is none":   {args: []string{"--allow-cidr", "10.0.0.0/33"}, want: "203.0.113.0/24"},
		"a range behind a proxy": {args: []string{"--tunnel", "ssh", "--ssh", "me@host", "--ssh-url", "https://host", "--allow-cidr", "10.0.0.0/8"}, want: "the proxy's address"},
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
	if c.listen != "127.0.0.1:8000" || c.tunnel.kind != tunnelNone || !c.generated || c.secret.IsZero() {
		t.Errorf("settings are %+v", c)
	}
	if want := filepath.Join(c.workDir, ".colab-relay"); c.stateDir != want {
		t.Errorf("state dir is %q, want %q", c.stateDir, want)
	}
	if real, _ := filepath.EvalSymlinks(dir); c.workDir != dir && c.workDir != real && !isDir("/content") && !isDir("/kaggle/working") {
		t.Errorf("workdir is %q, want %q", c.workDir, dir)
	}
	c, err = parseConfig(nil, env(envNgrokToken, "token"), io.Discard)
	if err != nil || c.tunnel.kind != tunnelNgrok {
		t.Errorf("with a token the tunnel is %q: %v", c.tunnel.kind, err)
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

func TestTheTunnelsAreChosenByTheirFlags(t *testing.T) {
	for want, args := range map[tunnelKind][]string{
		tunnelSSH:         {"--tunnel", "ssh", "--ssh", "me@host:2222", "--ssh-remote", "localhost:8000", "--ssh-url", "auto"},
		tunnelCloudflared: {"--tunnel", "cloudflared", "--allow-cidr", "203.0.113.7", "--allow-cidr", "2001:db8::/32"},
		tunnelNone:        {"--tunnel", "none", "--allow-cidr", "10.1.2.3/8"},
	} {
		c, err := parseConfig(args, env(envNgrokToken, "token", "HOME", t.TempDir()), io.Discard)
		if err != nil || c.tunnel.kind != want {
			t.Errorf("%q gave the tunnel %q: %v", args, c.tunnel.kind, err)
		}
		if want == tunnelNone && fmt.Sprint(c.tunnel.allow) != "[10.0.0.0/8]" {
			t.Errorf("the ranges are %v", c.tunnel.allow)
		}
	}
}

func TestAListenerBeyondLoopbackIsToldWithWhatItMeans(t *testing.T) {
	for listen, want := range map[string]string{
		"127.0.0.1:8000": "", "localhost:8000": "", "[::1]:0": "",
		":8000": "every network interface", "0.0.0.0:0": "every network interface", "[::]:0": "every network interface", "10.0.0.5:80": "10.0.0.5",
	} {
		var out strings.Builder
		n := newNotice(config{listen: listen, tunnel: tunnelConfig{kind: tunnelNgrok}}, "i", &out, nil)
		n.local("http://127.0.0.1:8000")
		told := strings.Contains(out.String(), "plain HTTP on "+want)
		if want == "" && strings.Contains(out.String(), "plain HTTP") || want != "" && !told {
			t.Errorf("--listen %s prints:\n%s", listen, &out)
		}
	}
}

func TestASSHTunnelWithoutTLSIsToldWithWhatItMeans(t *testing.T) {
	for url, want := range map[string]bool{"http://host:4711": true, "https://host": false} {
		var out strings.Builder
		n := newNotice(config{tunnel: tunnelConfig{kind: tunnelSSH}}, "i", &out, nil)
		n.public(url)
		if strings.Contains(out.String(), "plain HTTP") != want {
			t.Errorf("for %s it prints:\n%s", url, &out)
		}
	}
}

func TestHelpNamesEveryFlag(t *testing.T) {
	var out strings.Builder
	if _, err := parseConfig([]string{"-h"}, env(), &out); !errors.Is(err, flag.ErrHelp) {
		t.Fatal(err)
	}
	for _, name := range []string{
		"listen", "tunnel", "domain", "workdir", "state-dir", "python", "allow-path", "ready-file", "allow-cidr",
		"ssh", "ssh-key", "ssh-known-hosts", "ssh-accept-new", "ssh-remote", "ssh-url",
	} {
		if !strings.Contains(out.String(), "--"+name+" ") {
			t.Errorf("help does not tell of --%s", name)
		}
	}
}
