package transfer

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
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
