package transfer

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"colabrelay/shared/e2e/fakevm"
)

// linked creates a hard link in a home folder.
func linked(t *testing.T, home, name, to string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(filepath.Join(home, to)), 0o700))
	must(t, os.Link(filepath.Join(home, name), filepath.Join(home, to)))
}

func TestHardLinksToSecretsAreNotUploaded(t *testing.T) {
	home := t.TempDir()
	plant(t, home, "config/runtimes.json", "checkpoints/a/b/one", ".ssh/work/key", ".netrc", ".docker/config.json", ".config/BraveSoftware/Default/Cookies",
		"AppData/Local/Google/Chrome/User Data/Default/Cookies", "Library/Keychains/login", "other/notes")
	cases := map[string]string{
		"config/runtimes.json": "rt.json", "checkpoints/a/b/one": "one", ".ssh/work/key": "data.csv", ".netrc": "rc", ".docker/config.json": "docker.txt",
		".config/BraveSoftware/Default/Cookies": "jar", "AppData/Local/Google/Chrome/User Data/Default/Cookies": "jar2", "Library/Keychains/login": "k",
	}
	g := &Guard{Never: []string{filepath.Join(home, "config"), filepath.Join(home, "checkpoints")}, Home: home}
	vm := fakevm.Start(t)
	c := clientOf(t, vm)
	for name, link := range cases {
		linked(t, home, name, filepath.Join("up", link, "tree", link))
		for _, local := range []string{filepath.Join("up", link, "tree", link), filepath.Join("up", link)} {
			_, err := Upload(t.Context(), c, filepath.Join(home, local), "x", Options{Guard: g})
			if checked := CheckUpload(t.Context(), filepath.Join(home, local), g); !errors.Is(err, ErrGuarded) || !errors.Is(checked, ErrGuarded) {
				t.Errorf("%s as %s: %v, %v", name, local, err, checked)
			}
		}
	}
	if n := vm.Count("POST /v1/uploads"); n > 0 {
		t.Errorf("%d uploads were started", n)
	}
	linked(t, home, "other/notes", "up/notes")
	if _, err := Upload(t.Context(), c, filepath.Join(home, "up", "notes"), "x", Options{Guard: g}); err != nil {
		t.Errorf("an ordinary file with two links: %v", err)
	}
	if got, _ := vm.File("x"); string(got) != "secret" {
		t.Errorf("the VM has %q", got)
	}
}

func TestAHardLinkToAPermittedKeyIsUploaded(t *testing.T) {
	home := t.TempDir()
	plant(t, home, ".ssh/id_rsa", ".aws/credentials", "config/runtimes.json")
	for name, link := range map[string]string{".ssh/id_rsa": "up/a", ".aws/credentials": "open/b", "config/runtimes.json": "open/c"} {
		linked(t, home, name, link)
	}
	g := &Guard{Never: []string{filepath.Join(home, "config")}, Home: home}
	for _, permitted := range []string{".ssh", "open", "config"} {
		g.Permit = append(g.Permit, filepath.Join(home, permitted))
	}
	for name, good := range map[string]bool{"up/a": true, "up": true, "open/b": true, "open/c": false, "open": false} {
		if err := CheckUpload(t.Context(), filepath.Join(home, name), g); (err == nil) != good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// If one of the relay's folders cannot be read completely, no second name is accepted.
func TestAFileThatCannotBeComparedIsRefused(t *testing.T) {
	home := t.TempDir()
	plant(t, home, "a/1", "a/2", "a/b/3")
	if (fileSet{}).walk(home+"/a", 3) || !(fileSet{}).walk(home+"/a", 4) {
		t.Error("not all of four entries count")
	}
	linked(t, home, "a/1", "up/x")
	plant(t, home, "up/single")
	i := newInspection(&Guard{})
	i.secrets = func() *secrets { return &secrets{} }
	for name, good := range map[string]bool{"up/x": false, "up/single": true} {
		info, err := os.Stat(filepath.Join(home, name))
		must(t, err)
		if err := i.check(filepath.Join(home, name), info); (err == nil) != (good || !hasSeveralLinks(info)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
