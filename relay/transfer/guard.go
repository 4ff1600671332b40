package transfer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// ErrGuarded is a local file that must not leave the laptop unasked: it looks like a
// key, or the relay's own secrets are kept there.
var ErrGuarded = errors.New("this may hold keys or passwords, and is not uploaded")

// Guard says which local files an upload may read. What calls the tools is a model, and
// what tells the model what to do may be a web page: without a guard that could send
// any file of the user's to a VM.
type Guard struct {
	Never  []string // folders that nothing is uploaded from, whatever is permitted
	Permit []string // files and folders that are uploaded although they look like keys
}

// keyFolders are folders of keys, by the end of their path, in lower case: on systems
// that take names in any case, the guard must too.
var keyFolders = []string{
	".ssh", ".aws", ".azure", ".gnupg", ".kube", ".password-store", ".config/gcloud", ".config/gh", ".config/op", ".config/rclone", ".local/share/keyrings",
	"library/keychains", "microsoft/credentials", "microsoft/protect", "microsoft/vault",
	// Browsers on Linux, macOS and Windows.
	".mozilla", ".config/google-chrome", ".config/chromium", ".config/microsoft-edge", ".config/bravesoftware", ".config/opera", ".config/vivaldi",
	"snap/firefox", "snap/chromium", ".var/app/org.mozilla.firefox", ".var/app/com.google.chrome",
	"application support/firefox", "application support/google/chrome", "application support/chromium", "application support/microsoft edge",
	"application support/bravesoftware", "application support/com.operasoftware.opera", "application support/vivaldi", "library/safari", "library/cookies",
	"mozilla/firefox", "google/chrome/user data", "chromium/user data", "microsoft/edge/user data", "bravesoftware/brave-browser/user data", "opera software", "vivaldi/user data",
}

// keyFiles are names of files that hold keys, as patterns of path.Match, in lower case.
var keyFiles = []string{
	".netrc", "_netrc", ".npmrc", ".pypirc", ".git-credentials", ".pgpass", ".my.cnf", ".vault-token", ".htpasswd",
	"*.pem", "*.ppk", "*.p12", "*.pfx", "*.kdbx", "*.keychain", "*.keychain-db", "id_*", "executor-secret", "runtimes.json",
}

// keyPaths are files that hold keys, by the end of their path.
var keyPaths = []string{".docker/config.json", ".cargo/credentials", ".cargo/credentials.toml", ".config/git/credentials", ".config/pip/pip.conf", ".terraform.d/credentials.tfrc.json"}

// check refuses a file, given by its real path.
func (g *Guard) check(real string) error {
	if g == nil {
		return nil
	}
	switch {
	case g.isOwn(filepath.Dir(real)):
		return fmt.Errorf("%w: %q is the relay's own", ErrGuarded, real)
	case g.isKey(real):
		return fmt.Errorf("%w: %q", ErrGuarded, real)
	}
	return nil
}

// isOwn reports whether a folder is among those that nothing is uploaded from.
func (g *Guard) isOwn(dir string) bool {
	return slices.ContainsFunc(g.Never, func(folder string) bool { return below(dir, folder) })
}

// isKey reports whether a file looks like a key and is not permitted.
func (g *Guard) isKey(real string) bool {
	return looksLikeKey(real) && !slices.ContainsFunc(g.Permit, func(permitted string) bool { return below(real, permitted) })
}

// below reports whether a path is folder, or lies in it. The file system is asked about
// each folder on the way, as two spellings may name the same one.
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

// looksLikeKey reports whether a path is among those that usually hold keys.
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

// realPath is where an open file is, with no link on the way: the file of that path is
// the one that is open, so what is checked is what is read.
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

// maxRefused is how many files a refusal of a tree names.
const maxRefused = 10

// CheckUpload refuses what Upload would refuse for its guard, without sending anything.
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
		return g.check(real)
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

// checkTree refuses a tree that holds a guarded file: left out unsaid it would look
// whole, and the caller is to decide.
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
	var refused []string
	own := map[string]bool{} // folders that were looked at, and whether they are the relay's
	for _, e := range t.files {
		at := filepath.Join(top, filepath.FromSlash(e.name))
		if e.link {
			if at, err = filepath.EvalSymlinks(at); err != nil {
				return err
			}
		}
		dir := filepath.Dir(at)
		if _, known := own[dir]; !known {
			own[dir] = g.isOwn(dir)
		}
		if own[dir] || g.isKey(at) {
			refused = append(refused, e.name)
		}
	}
	switch n := len(refused); {
	case n == 0:
		return nil
	case n > maxRefused:
		return fmt.Errorf("%w: %q and %d more in %q", ErrGuarded, refused[:maxRefused], n-maxRefused, root.Name())
	}
	return fmt.Errorf("%w: %q in %q", ErrGuarded, refused, root.Name())
}
