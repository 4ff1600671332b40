package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"colabrelay/shared/lazy"
)

// ErrGuarded means that a local file must not leave the laptop without permission, because
// it looks like a key or contains the relay's own secrets. The error names the file.
var ErrGuarded = errors.New("not uploaded")

// Guard decides which local files an upload may read. A model calls the tools, and a web
// page may instruct the model: without a guard it could send any of the user's files to a
// VM.
type Guard struct {
	Never   []string // folders whose files are never uploaded, even if permitted
	Secrets []string // files that are never uploaded, under any name, even if permitted
	Permit  []string // files and folders that are uploaded although they look like keys
}

// keyFolders are folders of keys, by the end of their path. They are in lower case and
// compared without case, because some file systems ignore case.
var keyFolders = []string{
	".ssh", ".aws", ".azure", ".gnupg", ".kube", ".password-store", ".config/gcloud", ".config/gh", ".config/op", ".config/rclone", ".local/share/keyrings",
	".kaggle", ".huggingface", ".config/ngrok", ".ngrok2", ".config/sops", ".local/share/kwalletd", ".thunderbird", ".electrum",
	// Programs that run agents keep the keys of their models and of MCP servers, this relay's among them.
	".codex", ".gemini", ".codeium",
	"library/keychains", "microsoft/credentials", "microsoft/protect", "microsoft/vault",
	// Browsers on Linux, macOS and Windows.
	".mozilla", ".config/google-chrome", ".config/chromium", ".config/microsoft-edge", ".config/bravesoftware", ".config/opera", ".config/vivaldi",
	"snap/firefox", "snap/chromium", ".var/app/org.mozilla.firefox", ".var/app/com.google.chrome",
	"application support/firefox", "application support/google/chrome", "application support/chromium", "application support/microsoft edge",
	"application support/bravesoftware", "application support/com.operasoftware.opera", "application support/vivaldi", "library/safari", "library/cookies",
	"mozilla/firefox", "google/chrome/user data", "chromium/user data", "microsoft/edge/user data", "bravesoftware/brave-browser/user data", "opera software", "vivaldi/user data",
}

// keyFiles are the names of files with keys, as patterns for path.Match, in lower case.
var keyFiles = []string{
	".netrc", "_netrc", ".npmrc", ".pypirc", ".git-credentials", ".pgpass", ".my.cnf", ".vault-token", ".htpasswd",
	"*.pem", "*.ppk", "*.p12", "*.pfx", "*.kdbx", "*.keychain", "*.keychain-db", "id_*", "executor-secret", "runtimes.json",
	"client_secret*.json", "google-login.json", "application_default_credentials.json",
	".s3cfg", ".boto", "kaggle.json", "ngrok.yml", "*.jks", "*.keystore", "wallet.dat",
	".claude.json", "claude_desktop_config.json", ".mcp.json",
	"*.before-colab-relay", // the relay's copy of such a file
}

// keyPaths are files with keys, by the end of their path.
var keyPaths = []string{".docker/config.json", ".cargo/credentials", ".cargo/credentials.toml", ".config/git/credentials", ".config/pip/pip.conf", ".terraform.d/credentials.tfrc.json",
	".gem/credentials", ".config/containers/auth.json", ".config/hub", ".cache/huggingface/token", ".claude/.credentials.json", ".claude/settings.json", ".claude/settings.local.json", ".cursor/mcp.json", ".vscode/mcp.json", "code/user/mcp.json", "code - insiders/user/mcp.json", "vscodium/user/mcp.json", "zed/settings.json", "devin/mcp_config.json"}

// isOwn reports whether a folder is one of the Never folders, or in one.
func (g *Guard) isOwn(dir string) bool {
	return slices.ContainsFunc(g.Never, func(folder string) bool { return below(dir, folder) })
}

// permits reports whether a file may be uploaded although it looks like a key.
func (g *Guard) permits(real string) bool {
	return slices.ContainsFunc(g.Permit, func(permitted string) bool { return below(real, permitted) })
}

// below reports whether a path is folder or is in it. It compares the folders themselves,
// because one folder can have two spellings.
func below(real, folder string) bool {
	want, err := os.Stat(folder)
	for at := real; err == nil; at = filepath.Dir(at) {
		if info, statErr := os.Stat(at); statErr == nil && os.SameFile(info, want) {
			return true
		}
		if filepath.Dir(at) == at {
			return false
		}
	}
	return false
}

// looksLikeKey reports whether files with this path usually contain keys.
func looksLikeKey(real string) bool {
	name := strings.ToLower(filepath.ToSlash(real))
	for _, folder := range keyFolders {
		if strings.Contains(name+"/", "/"+folder+"/") {
			return true
		}
	}
	for _, file := range keyPaths {
		if strings.HasSuffix(name, "/"+file) {
			return true
		}
	}
	for _, pattern := range keyFiles {
		if match, _ := path.Match(pattern, path.Base(name)); match {
			return true
		}
	}
	return false
}

// realPath returns the path of an open file without links. It makes sure that the path
// still leads to the open file, so that the checked file is the one that is read.
func realPath(name string, open fs.FileInfo) (string, error) {
	real, err := filepath.Abs(name)
	if err == nil {
		real, err = filepath.EvalSymlinks(real)
	}
	if err != nil {
		return "", err
	}
	now, err := os.Lstat(real)
	if err == nil && !os.SameFile(now, open) {
		err = errStale
	}
	return real, err
}

// What guarded content a file may have.
const (
	foundOwn = "the relay's own secrets"
	foundKey = "keys or passwords"
)

// inspect checks a file by its folder, its identity, its name and its first bytes. own says
// whether the folder is the relay's. It returns what the file may contain; empty if it is harmless.
func (g *Guard) inspect(real string, info fs.FileInfo, own bool) string {
	isSecret := func(name string) bool {
		secret, err := os.Stat(name)
		return err == nil && os.SameFile(secret, info)
	}
	switch {
	case own || slices.ContainsFunc(g.Secrets, isSecret):
		return foundOwn
	case (looksLikeKey(real) || holdsKey(real, info)) && !g.permits(real):
		return foundKey
	}
	return ""
}

// check refuses a guarded file, given by its real path and its open description.
func (g *Guard) check(real string, open fs.FileInfo) error {
	if g == nil {
		return nil
	}
	if found := g.inspect(real, open, g.isOwn(filepath.Dir(real))); found != "" {
		return fmt.Errorf("%w: %q may contain %s", ErrGuarded, real, found)
	}
	return nil
}

// CheckUpload returns the ErrGuarded that Upload would return with g, without sending
// anything.
func CheckUpload(ctx context.Context, local string, g *Guard) error {
	info, err := statLocal(local)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		real, err := realPath(local, info)
		if err != nil {
			return fmt.Errorf("uploading %q: %w", local, err)
		}
		return g.check(real, info)
	}
	root, err := os.OpenRoot(local)
	if err != nil {
		return fmt.Errorf("opening the folder %q: %w", local, err)
	}
	defer root.Close()
	tree, err := walkLocal(ctx, root)
	if err != nil {
		return err
	}
	return g.checkTree(root, tree)
}

// checkTree refuses a tree that contains a guarded file. If the file were skipped, the copy
// would look complete; the caller must decide.
func (g *Guard) checkTree(root *os.Root, t localTree) error {
	if g == nil {
		return nil
	}
	top, err := filepath.Abs(root.Name())
	if err == nil {
		top, err = filepath.EvalSymlinks(top)
	}
	if err != nil {
		return err
	}
	refused := map[string][]string{} // by what they may contain
	own := map[string]bool{}         // whether a folder is the relay's
	for _, e := range t.files {
		at := filepath.Join(top, filepath.FromSlash(e.name))
		if e.link {
			if at, err = filepath.EvalSymlinks(at); err != nil {
				return err
			}
		}
		dir := filepath.Dir(at)
		if _, checked := own[dir]; !checked {
			own[dir] = g.isOwn(dir)
		}
		if found := g.inspect(at, e.info, own[dir]); found != "" {
			refused[found] = append(refused[found], strconv.Quote(e.name))
		}
	}
	var parts []string
	for _, found := range []string{foundOwn, foundKey} {
		names := refused[found]
		more := ""
		if len(names) > maxRefused {
			more = fmt.Sprintf(" and %d more", len(names)-maxRefused)
			names = names[:maxRefused]
		}
		if len(names) > 0 {
			parts = append(parts, fmt.Sprintf("%s: %s%s", found, strings.Join(names, ", "), more))
		}
	}
	if len(parts) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %q may contain %s", ErrGuarded, root.Name(), strings.Join(parts, "; "))
}

// maxRefused bounds how many files of each kind a refusal names.
const maxRefused = 10

// maxKeyText bounds how much of a file is searched for the text of a private key, in bytes from
// its beginning.
const maxKeyText = 4 << 10

var (
	// keyText is the first line of a private key: of PEM (RFC 7468), OpenSSH and OpenPGP, also
	// inside a JSON string, as in the key files of service accounts; of PuTTY and SSH2 (RFC
	// 4716); and the one line of a key of age or WireGuard.
	keyText = lazy.Regexp(`-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY( BLOCK)?-----(\r|\n|\\r|\\n)|^PuTTY-User-Key-File-\d` +
		`|^---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----|(?m:^AGE-(SECRET-KEY|PLUGIN-[A-Z0-9-]{1,40})-1[A-Z0-9]{20})|(?mi:^\s*PrivateKey\s*=\s*[A-Z0-9+/]{43}=)`)
	// A JSON Web Key (RFC 7517) is private if it has the member d, or is symmetric.
	webKey        = lazy.Regexp(`"kty"\s*:`)
	webKeyPrivate = lazy.Regexp(`"d"\s*:\s*"[\w-]{16}|"kty"\s*:\s*"oct"`)
)

// holdsKey reports whether a file begins with a private key, whatever the file is called. A
// file that cannot be read holds none: it is not uploaded either.
func holdsKey(real string, info fs.FileInfo) bool {
	if !info.Mode().IsRegular() {
		return false
	}
	f, err := os.OpenFile(real, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO may have replaced the file
	if err != nil {
		return false
	}
	defer f.Close()
	if open, err := f.Stat(); err != nil || !os.SameFile(open, info) {
		return false
	}
	start, _ := io.ReadAll(io.LimitReader(f, maxKeyText))
	return isKeyText(start)
}

// jsonEscape matches the escape of an ASCII letter in JSON.
var jsonEscape = lazy.Regexp(`\\u00[4-7][0-9A-Fa-f]`)

// byteOrderMarks may be in front of a text in UTF-16 or UTF-8.
var byteOrderMarks = [][]byte{{0xff, 0xfe}, {0xfe, 0xff}, {0xef, 0xbb, 0xbf}}

func isKeyText(text []byte) bool {
	for _, mark := range byteOrderMarks {
		text = bytes.TrimPrefix(text, mark)
	}
	text = jsonEscape().ReplaceAllFunc(text, func(escape []byte) []byte {
		code, _ := strconv.ParseUint(string(escape[2:]), 16, 8) // two digits of hexadecimal
		return []byte{byte(code)}
	})
	text = bytes.ReplaceAll(text, []byte{0}, nil) // in UTF-16, every other byte of ASCII text
	return keyText().Match(text) || webKey().Match(text) && webKeyPrivate().Match(text)
}
