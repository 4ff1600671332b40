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
		for flag, fails := range map[string]bool{"--ready-file=~/x": false, "--ready-file=$HOME/x": true, "--allow-path=/home/${USER}": true, "--workdir=file:///tmp": true} {
			if c, err := parseConfig([]string{flag}, getenv, io.Discard); (err != nil) != fails || !fails && !filepath.IsAbs(c.readyFile) || strings.Contains(c.readyFile, "~") {
				t.Errorf("%s: %q, %v", flag, c.readyFile, err)
			}
		}
		if text := fmt.Sprintf("%v %+v %#v", c, c, c); strings.Contains(text, longSecret) {
			t.Errorf("%s: printed settings show the secret", name)
		}
	}
}
