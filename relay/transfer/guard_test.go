package transfer

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"colabrelay/shared/contract"
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

func utf16Text(order binary.AppendByteOrder, text string) []byte {
	var out []byte
	for _, unit := range utf16.Encode([]rune("\ufeff" + text)) {
		out = order.AppendUint16(out, unit)
	}
	return out
}

func TestPrivateKeysAreFoundInEveryForm(t *testing.T) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	text := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	keys := map[string][]byte{
		"UTF-16LE": utf16Text(binary.LittleEndian, text), "UTF-16BE": utf16Text(binary.BigEndian, text),
		"age":          []byte("# created: 2026-01-01\n# public key: age1x\nAGE-SECRET-KEY-1" + strings.Repeat("Q", 58) + "\n"),
		"age, UTF-16":  utf16Text(binary.LittleEndian, "AGE-SECRET-KEY-1"+strings.Repeat("Q", 58)),
		"PuTTY, UTF-8": []byte("\ufeffPuTTY-User-Key-File-3: ssh-ed25519\n"),
		"WireGuard":    []byte("[Interface]\r\nPrivateKey = " + strings.Repeat("a", 43) + "=\r\n"),
		"SSH2":         []byte("---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\nComment: x\n"),
		"JWK":          []byte(`{"keys": [{"kty" : "EC", "crv": "P-256", "d":"` + strings.Repeat("a", 43) + `"}]}`),
		"JWK, oct":     []byte(`{"k":"c2VjcmV0","kty":"oct"}`),
		"JWK, escaped": []byte(`{"kty":"EC","crv":"P-256","\u0064":"` + strings.Repeat("a", 43) + `"}`),
	}
	keys["WireGuard, lower case"] = bytes.ToLower(keys["WireGuard"])
	others := map[string][]byte{
		"a public key":            []byte("-----BEGIN PUBLIC KEY-----\n"),
		"text that begins with 0": []byte("0 is the first number of the table\n"), "a public JWK": []byte(`{"kty":"EC","crv":"P-256","x":"` + strings.Repeat("a", 43) + `"}`),
		"d elsewhere": []byte(`{"d": "` + strings.Repeat("a", 43) + `"}`), "age's public key": []byte("age1" + strings.Repeat("q", 58)), "nothing": nil,
	}
	dir := t.TempDir()
	found := func(content []byte) bool {
		t.Helper()
		path := filepath.Join(dir, "notes.txt")
		must(t, os.WriteFile(path, content, 0o600))
		err := CheckUpload(t.Context(), path, &Guard{})
		if err != nil && !errors.Is(err, ErrGuarded) {
			t.Fatal(err)
		}
		return err != nil
	}
	for name, content := range keys {
		if !found(content) {
			t.Errorf("%s: not found", name)
		}
	}
	for name, content := range others {
		if found(content) {
			t.Errorf("%s: taken for a private key", name)
		}
	}
}

// Programs on the laptop run or obey such files because of their names, which the VM chooses.
func TestAFolderComesWithoutWhatProgramsObey(t *testing.T) {
	v := useVM(t)
	left := []string{".GIT", ".envrc", ".mcp.json", "CLAUDE.md", "GIT~1", "sub/.vscode", "sub/HEAD", "sub/agents.MD"}
	for _, name := range []string{".GIT/config", ".envrc", ".mcp.json", "CLAUDE.md", "GIT~1/config", "sub/.vscode/tasks.json", "sub/HEAD", "sub/agents.MD", "sub/a.py", "README.md", ".keep/x/y"} {
		fill(t, v.path("p/"+name), 10, 1)
	}
	left = append(left, ".keep")
	slices.Sort(left)
	dir := t.TempDir()
	for _, skipped := range []int{0, 2} {
		r, err := Download(t.Context(), v.client, v.path("p"), Local{Dir: dir}, Options{})
		must(t, err)
		slices.Sort(r.LeftOut.Paths)
		want := make([]string, len(left))
		for i, name := range left {
			want[i] = v.path("p/" + name)
		}
		if r.Files != 2 || r.Skipped != skipped || !slices.Equal(r.LeftOut.Paths, want) || r.LeftOut.More != 0 {
			t.Errorf("%+v, want %q", r, want)
		}
		wantNames(t, r.Path, "README.md", "sub")
		wantNames(t, filepath.Join(r.Path, "sub"), "a.py")
	}
	r, err := Download(t.Context(), v.client, v.path("p/.keep"), Local{Dir: dir}, Options{}) // who names it asks for it
	if err != nil || r.Files != 1 || len(r.LeftOut.Paths) != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	r, err = Download(t.Context(), v.client, v.path("p"), Local{Dir: dir, Dotfiles: true}, Options{})
	if err != nil || r.Files != 11 || len(r.LeftOut.Paths) != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	wantNames(t, filepath.Join(r.Path, ".GIT"), "config")
	r, err = Download(t.Context(), v.client, v.path("p"), Local{Dir: t.TempDir(), Dotfiles: true, NoObeyed: true}, Options{})
	if err != nil || r.Files != 2 || len(r.LeftOut.Paths) != len(left) {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestLocalNameIsTheLastPartUnescaped(t *testing.T) {
	for _, c := range []struct{ remote, unix, windows string }{
		{"a.txt", "a.txt", "a.txt"},
		{"/content/sub/a.txt", "a.txt", "a.txt"},
		{"/content/sub/", "sub", "sub"},
		{"", "_", "_"},
		{"/", "_", "_"},
		{"/content/..", "__", "_"},
		{`\xe2\x80\xaegnp.exe`, "_gnp.exe", "_gnp.exe"},
		{`/content/bad\xff\xfe/`, `bad\xff\xfe`, "bad_xff_xfe"},
		{`\x5cxff`, `\xff`, "_xff"},
	} {
		if got := localName(c.remote, false); got != c.unix {
			t.Errorf("LocalName(%q) = %q, want %q", c.remote, got, c.unix)
		}
		if got := localName(c.remote, true); got != c.windows {
			t.Errorf("LocalName(%q) on Windows = %q, want %q", c.remote, got, c.windows)
		}
	}
}

func ownName(remote string) string { return localName(remote, onWindows) }

func TestEachEntryOfAFolderGetsItsOwnLocalName(t *testing.T) {
	entries := func(names ...string) []treeFile {
		var out []treeFile
		for _, n := range names {
			out = append(out, treeFile{File: contract.File{Name: n}})
		}
		return out
	}
	for name, c := range map[string]struct {
		in   []string
		fold bool
		want []string
	}{
		"made the same":      {[]string{"x\x00", "x_", "x/"}, false, []string{"x_ (1)", "x_", "x"}},
		"invisible":          {[]string{"x\x1b", "x\u202e", "x_"}, false, []string{"x_ (1)", "x_ (2)", "x_"}},
		"a kept name wins":   {[]string{"a\x00", "a_", "a_ (1)"}, false, []string{"a_ (2)", "a_", "a_ (1)"}},
		"case":               {[]string{"Read.me", "read.me", "READ.ME"}, true, []string{"Read.me", "read (1).me", "READ (2).ME"}},
		"two that are long":  {[]string{strings.Repeat("a", 300), strings.Repeat("a", 301)}, false, []string{strings.Repeat("a", 255), strings.Repeat("a", 251) + " (1)"}},
		"like a part's name": {[]string{"a", "a.colab-part", "a.COLAB-part.json"}, false, []string{"a", "a.colab-part_", "a.COLAB-part.json_"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := entries(c.in...)
			localNames(got, ownName, c.fold)
			used := map[string]bool{}
			for i := range got {
				name := got[i].localName()
				if name != c.want[i] {
					t.Errorf("%q becomes %q, want %q", c.in[i], name, c.want[i])
				}
				for _, file := range []string{name, partName(name), partName(name) + journalSuffix} {
					if used[file] {
						t.Errorf("%q has two uses", file)
					}
					used[file] = true
				}
			}
		})
	}
}
