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
		".codex/auth.json", ".claude.json", ".config/Claude/claude_desktop_config.json", ".cursor/mcp.json", "project/.mcp.json", "project/.vscode/mcp.json", ".claude/settings.json", ".config/zed/settings.json", "x.json.before-colab-relay", ".kaggle/kaggle.json", ".cache/huggingface/token", ".ngrok2/ngrok.yml",
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

// A key is recognised by its text too, because a model can name any file.
func TestPrivateKeysUnderOtherNamesAreNotUploaded(t *testing.T) {
	home := t.TempDir()
	vm := fakevm.Start(t)
	c := clientOf(t, vm)
	write := func(name, text string) string {
		must(t, os.MkdirAll(filepath.Join(home, filepath.Dir(name)), 0o700))
		must(t, os.WriteFile(filepath.Join(home, name), []byte(text), 0o600))
		return filepath.Join(home, name)
	}
	begin := "-----BEGIN OPENSSH " + "PRIVATE KEY-----"
	late := strings.Repeat("x", maxKeyText-len(begin)-1)
	for name, text := range map[string]string{
		"a/notes.txt": begin + "\nb3Bl\n", "b/crlf": "\ufeff" + begin + "\r\nb3Bl", "c/last.md": late + begin + "\n",
		"d/account.json": `{"private_key": "` + strings.Replace(begin, "OPENSSH ", "", 1) + `\nMIIE"}`, "e/putty": "PuTTY-User-Key-File-3: ssh-ed25519\n",
		"f/gpg.asc": "-----BEGIN PGP " + "PRIVATE KEY BLOCK-----\n",
	} {
		local := write(name, text)
		for _, local := range []string{local, filepath.Dir(local)} {
			_, err := Upload(t.Context(), c, local, "x", Options{Guard: &Guard{}})
			if checked := CheckUpload(t.Context(), local, &Guard{}); !errors.Is(err, ErrGuarded) || !errors.Is(checked, ErrGuarded) {
				t.Errorf("%s: %v, %v", local, err, checked)
			}
		}
		if err := CheckUpload(t.Context(), local, &Guard{Permit: []string{filepath.Dir(local)}}); err != nil {
			t.Errorf("%s, permitted: %v", name, err)
		}
	}
	if n := vm.Count("POST /v1/uploads"); n > 0 {
		t.Errorf("%d uploads were started", n)
	}
	for name, text := range map[string]string{
		"ok/late.txt": "x" + late + begin + "\n", "ok/code.py": `if "` + begin + `" in text:`, "ok/public.txt": "-----BEGIN PUBLIC KEY-----\n", "ok/empty": "",
	} {
		if err := CheckUpload(t.Context(), write(name, text), &Guard{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The files that settings name hold secrets, wherever the user keeps them.
func TestNamedSecretsAreNotUploaded(t *testing.T) {
	home := t.TempDir()
	plant(t, home, "tree/token", "tree/other")
	g := &Guard{Secrets: []string{filepath.Join(home, "tree", "token"), filepath.Join(home, "gone")}, Permit: []string{home}}
	must(t, os.Mkdir(filepath.Join(home, "up"), 0o700))
	must(t, os.Link(filepath.Join(home, "tree", "token"), filepath.Join(home, "up", "data.csv")))
	must(t, os.Symlink("tree/token", filepath.Join(home, "link")))
	for name, good := range map[string]bool{"tree/token": false, "tree": false, "up/data.csv": false, "link": false, "tree/other": true} {
		if err := CheckUpload(t.Context(), filepath.Join(home, name), g); errors.Is(err, ErrGuarded) == good {
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
	if n := vm.Count("POST /v1/uploads"); n > 0 {
		t.Errorf("%d uploads were started", n)
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
