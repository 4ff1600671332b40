package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// places is everything that may show a secret, by name.
type places map[string][]byte

// addProcesses adds the arguments and the environment of every process of this computer.
func (p places) addProcesses() {
	for _, pattern := range []string{"/proc/[0-9]*/cmdline", "/proc/[0-9]*/environ"} {
		files, _ := filepath.Glob(pattern)
		for _, file := range files {
			p[file], _ = os.ReadFile(file) // a process may have ended
		}
	}
}

// addFiles adds all files below a folder but those at these paths.
func (p places) addFiles(t *testing.T, folder string, but ...string) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && !slices.Contains(but, path) {
			p[path], _ = os.ReadFile(path) // a file may be removed meanwhile
		}
		return nil
	})
	must(t, err)
}

// hold fails for each place that shows one of the secrets in any form.
func (p places) hold(t *testing.T, secrets map[string]string) {
	t.Helper()
	for name, content := range p {
		views := viewsOf(content)
		for what, secret := range secrets {
			if form := find(secret, views); form != "" {
				t.Errorf("%s shows the %s, %s", name, what, form)
			}
		}
	}
}
