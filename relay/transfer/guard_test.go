package transfer

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/shared/e2e/fakevm"
)

// plant creates files below a home folder.
func plant(t *testing.T, home string, names ...string) {
	t.Helper()
	for _, name := range names {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(home, name)), 0o700))
		must(t, os.WriteFile(filepath.Join(home, name), []byte("secret"), 0o600))
	}
}

func TestKeysAreNotUploaded(t *testing.T) {
	home := t.TempDir()
	vm := fakevm.Start(t)
	c := clientOf(t, vm)
	keys := []string{
		".ssh/known_hosts", ".ssh/sub/config", ".SSH/key", ".aws/credentials", ".gnupg/x", ".kube/config", ".config/gcloud/x.db", ".netrc", "_netrc",
		"server.pem", "client_secret_123-abc.apps.googleusercontent.com.json", "google-login.json", "application_default_credentials.json", "SERVER.PEM", "id_rsa", "id_ed25519.pub", ".docker/config.json", ".npmrc", ".pypirc", ".git-credentials", ".password-store/a.gpg",
		".mozilla/firefox/x/logins.json", ".config/google-chrome/Default/Login Data", "Library/Application Support/Google/Chrome/Default/Cookies",
		"AppData/Local/Microsoft/Edge/User Data/Default/Cookies", "AppData/Roaming/Mozilla/Firefox/Profiles/x/key4.db", "Library/Keychains/login.keychain-db",
	}
	plant(t, home, keys...)
	for _, name := range keys {
		if _, err := Upload(t.Context(), c, filepath.Join(home, name), "x", Options{Guard: &Guard{}}); !errors.Is(err, ErrGuarded) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, ok := vm.File("x"); ok {
		t.Error("something was uploaded")
	}
	usual := []string{"data.csv", "ssh/notes.txt", "pem", "valid_1.txt", ".config/app.toml", "docker/config.json", "aws.md"}
	plant(t, home, usual...)
	for _, name := range usual {
		if _, err := Upload(t.Context(), c, filepath.Join(home, name), "x", Options{Guard: &Guard{}, Overwrite: true}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The guard checks the file that is read, whatever its name is.
func TestLinksToKeysAreNotUploaded(t *testing.T) {
	home := t.TempDir()
	plant(t, home, ".ssh/key", "tree/a.txt", "tree/.ssh/key")
	must(t, os.Symlink(".ssh/key", filepath.Join(home, "notes.txt")))
	must(t, os.Symlink(".ssh", filepath.Join(home, "folder")))
	must(t, os.Symlink(".ssh/key", filepath.Join(home, "tree", "b.txt")))
	vm := fakevm.Start(t)
	c := clientOf(t, vm)
	for _, name := range []string{"notes.txt", "folder/key", "folder", "tree", "tree/b.txt", "."} {
		if _, err := Upload(t.Context(), c, filepath.Join(home, name), "x", Options{Guard: &Guard{}}); !errors.Is(err, ErrGuarded) {
			t.Errorf("%s: %v", name, err)
		}
	}
	info, err := os.Stat(filepath.Join(home, "tree", "a.txt"))
	must(t, err)
	if _, err := realPath(filepath.Join(home, "notes.txt"), info); !errors.Is(err, errStale) {
		t.Errorf("a name that leads elsewhere than the open file: %v", err)
	}
	if n := vm.Count("POST /v1/uploads"); n > 0 {
		t.Errorf("%d uploads were started", n)
	}
}

func TestARefusalOfATreeNamesSomeOfManyFiles(t *testing.T) {
	home := t.TempDir()
	plant(t, home, "data.csv")
	for range maxRefused + 5 {
		plant(t, home, strings.Repeat("x", len(names(t, home)))+".pem")
	}
	err := CheckUpload(t.Context(), home, &Guard{})
	if !errors.Is(err, ErrGuarded) || !strings.Contains(err.Error(), "and 5 more") || strings.Contains(err.Error(), "data.csv") || strings.Count(err.Error(), ".pem") != maxRefused {
		t.Errorf("%v", err)
	}
}

func TestPermittedFilesAndFilesThatNeverAre(t *testing.T) {
	home := t.TempDir()
	plant(t, home, "certs/ca.pem", "other/ca.pem", "config/runtimes", "config/sub/x", "data.csv")
	must(t, os.Symlink("certs", filepath.Join(home, "link")))
	g := &Guard{Never: []string{filepath.Join(home, "config")}, Permit: []string{filepath.Join(home, "link"), filepath.Join(home, "config"), filepath.Join(home, "gone")}}
	for name, good := range map[string]bool{
		"certs/ca.pem": true, "link/ca.pem": true, "certs": true, "data.csv": true,
		"other/ca.pem": false, "config/runtimes": false, "config": false, "config/sub": false, "other": false, ".": false,
	} {
		if err := CheckUpload(t.Context(), filepath.Join(home, name), g); (err == nil) != good || !good && !errors.Is(err, ErrGuarded) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
