package main

import (
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

func TestDefaults(t *testing.T) {
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

// As from --user "$UNSET", with which the kernel would run as the executor's own user.
func TestNoFlagMayBeEmpty(t *testing.T) {
	t.Chdir(t.TempDir())
	named := 0
	(&config{}).flagSet().VisitAll(func(f *flag.Flag) {
		if _, isBool := f.Value.(interface{ IsBoolFlag() bool }); isBool {
			return
		}
		named++
		for _, args := range [][]string{{"--" + f.Name, ""}, {"--" + f.Name + "="}} {
			if _, err := parseConfig(args, env(), io.Discard); err == nil || !strings.Contains(err.Error(), "--"+f.Name) {
				t.Errorf("%q: %v", args, err)
			}
		}
	})
	if named < 10 {
		t.Errorf("there are %d flags with a value", named)
	}
}

func TestTheSecretIsReadFromItsVariableOrFile(t *testing.T) {
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

func TestFlagsChooseTheTunnel(t *testing.T) {
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

func TestAListenerBeyondLoopbackIsReportedAsPlainHTTP(t *testing.T) {
	for listen, want := range map[string]string{
		"127.0.0.1:8000": "", "localhost:8000": "", "[::1]:0": "",
		":8000": "every network interface", "0.0.0.0:0": "every network interface", "[::]:0": "every network interface", "10.0.0.5:80": "10.0.0.5",
	} {
		var out strings.Builder
		n := newNotice(config{listen: listen, tunnel: tunnelConfig{kind: tunnelNgrok}}, "i", &out, nil)
		n.local("http://127.0.0.1:8000")
		reported := strings.Contains(out.String(), "plain HTTP on "+want)
		if want == "" && strings.Contains(out.String(), "plain HTTP") || want != "" && !reported {
			t.Errorf("--listen %s prints:\n%s", listen, &out)
		}
	}
}

func TestASSHTunnelWithoutTLSIsReportedAsPlainHTTP(t *testing.T) {
	for url, want := range map[string]bool{"http://host:4711": true, "https://host": false} {
		var out strings.Builder
		n := newNotice(config{tunnel: tunnelConfig{kind: tunnelSSH}}, "i", &out, nil)
		n.public(url)
		if strings.Contains(out.String(), "plain HTTP") != want {
			t.Errorf("for %s it prints:\n%s", url, &out)
		}
	}
}
