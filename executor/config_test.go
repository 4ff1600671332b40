package main

import (
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
