// Package bootstrap holds the Colab cell that downloads and starts the executor, as
// a template. It fills in a release and returns the cell or a notebook with it.
//
// It must not download or run anything: the cell does that, on the VM. Start
// reading at cell.ipy; README.md describes its use.
package bootstrap

import (
	"bufio"
	_ "embed"
	"fmt"
	"io"
	"net/url"
	"strings"

	"colabrelay/shared/lazy"
)

//go:embed cell.ipy
var cellIpy string

// template is the cell with blanks for a release.
var template = strings.Replace(cellIpy, "@FETCH@\n", fetchPy, 1)

// Release is what a cell downloads.
type Release struct {
	Releases    string // URL of the folder that holds a folder for each version
	Version     string // "v1.2.3"
	SHA256AMD64 string // of executor-linux-amd64, in hex, as SHA256SUMS has it
	SHA256ARM64 string // of executor-linux-arm64
}

// ReadSums reads the executors' digests from a SHA256SUMS file, which has the form of
// sha256sum's output. It ignores other files.
func (r *Release) ReadSums(sums io.Reader) error {
	fields := map[string]*string{"executor-linux-amd64": &r.SHA256AMD64, "executor-linux-arm64": &r.SHA256ARM64}
	lines := bufio.NewScanner(sums)
	for lines.Scan() {
		digest, name, _ := strings.Cut(lines.Text(), " ")
		if field, ok := fields[strings.TrimLeft(name, " *")]; ok {
			*field = digest
		}
	}
	return lines.Err()
}

var (
	versionPattern = lazy.Regexp(`^[A-Za-z0-9][A-Za-z0-9._+-]{0,63}$`)
	digestPattern  = lazy.Regexp(`^[0-9a-f]{64}$`)
)

// Cell returns the cell to paste for a release. It refuses values that Python could
// read as code.
func Cell(r Release) (string, error) {
	if err := r.check(); err != nil {
		return "", err
	}
	return r.fill().Replace(template), nil
}

// Page returns the URL of the release's page, which people read: GitHub's, if the release is
// there, else the release's folder.
func (r Release) Page() string {
	folder := strings.TrimRight(r.Releases, "/")
	if releases, ok := strings.CutSuffix(folder, "/releases/download"); ok && strings.HasPrefix(folder, "https://github.com/") {
		return releases + "/releases/tag/" + r.Version
	}
	return folder + "/" + r.Version + "/"
}

// check refuses values that Python could read as code.
func (r Release) check() error {
	if u, err := url.Parse(r.Releases); err != nil || u.Host == "" || strings.ContainsAny(r.Releases, `"\{}$ `) {
		return fmt.Errorf("release folder %q: not a plain URL", r.Releases)
	}
	if !versionPattern().MatchString(r.Version) {
		return fmt.Errorf("release version %q: must be letters, digits, dots and dashes", r.Version)
	}
	for _, digest := range []string{r.SHA256AMD64, r.SHA256ARM64} {
		if !digestPattern().MatchString(digest) {
			return fmt.Errorf("release digest %q: must be 64 hex digits", digest)
		}
	}
	return nil
}

// fill replaces the release's blanks in a template, and more of them, as
// strings.NewReplacer does.
func (r Release) fill(more ...string) *strings.Replacer {
	return strings.NewReplacer(append([]string{
		"@RELEASES@", strings.TrimRight(r.Releases, "/"),
		"@VERSION@", r.Version,
		"@PAGE@", r.Page(),
		"@SHA256_AMD64@", r.SHA256AMD64,
		"@SHA256_ARM64@", r.SHA256ARM64,
	}, more...)...)
}
