//go:build !windows

package auth

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"colabrelay/shared/bounded"
)

func TestASecretIsReadFromARegularFileOnly(t *testing.T) {
	dir := t.TempDir()
	key := strings.Repeat("k", maxSecretBytes)
	make := func(name, content string) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	pipe := filepath.Join(dir, "pipe")
	must(t, syscall.Mkfifo(pipe, 0o600))
	link := filepath.Join(dir, "link")
	must(t, os.Symlink(make("plain", key[:MinSecretBytes]+"\n"), link))
	for name, test := range map[string]struct {
		path string
		want error  // nil for none
		says string // in the error, where there is no value to compare
	}{
		"a plain file":                {path: make("a", key[:MinSecretBytes])},
		"a link to one":               {path: link},
		"newlines up to the bound":    {path: make("b", key+strings.Repeat("\n", maxSecretFile-len(key)))},
		"one byte past the bound":     {path: make("c", key+strings.Repeat("\n", maxSecretFile-len(key)+1)), says: "too long: over"},
		"too long a secret":           {path: make("d", key+"k"), want: ErrLongSecret},
		"too short a secret":          {path: make("e", "short"), want: ErrShortSecret},
		"a pipe without a writer":     {path: pipe, want: bounded.ErrNotFile},
		"a device":                    {path: "/dev/zero", want: bounded.ErrNotFile},
		"a folder":                    {path: dir, want: bounded.ErrNotFile},
		"nothing":                     {path: filepath.Join(dir, "none"), want: fs.ErrNotExist},
		"bytes that are not in UTF-8": {path: make("f", strings.Repeat("\xff", 40)), want: ErrBinarySecret},
	} {
		t.Run(name, func(t *testing.T) {
			secret, err := ReadSecretFile(test.path)
			fails := test.want != nil || test.says != ""
			if fails != (err != nil) || test.want != nil && !errors.Is(err, test.want) || fails && !strings.Contains(err.Error(), test.says) {
				t.Errorf("error = %v", err)
			}
			if !fails && secret.IsZero() || err != nil && !strings.Contains(err.Error(), test.path) {
				t.Errorf("secret %v, %v", secret, err)
			}
		})
	}
}
