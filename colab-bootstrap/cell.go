// Package bootstrap holds the Colab cell that downloads and starts the executor, as
// a template. It fills in a release and returns the cell or a notebook with it.
//
// It must not download or run anything: the cell does that, on the VM. Start
// reading at cell.ipy; README.md describes its use.
package bootstrap

import (
	"bufio"
	"bytes"
	_ "embed"
	"encoding/json"
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

//go:embed intro.md
var intro string

// Notebook returns the release's cell as a notebook (.ipynb, nbformat 4.5), below
// instructions.
func Notebook(r Release) ([]byte, error) {
	cell, err := Cell(r)
	if err != nil {
		return nil, err
	}
	return notebook(r.fill().Replace(intro), cell)
}

// object is encoded with its keys in alphabetical order, as Jupyter writes them.
type object map[string]any

func notebook(intro, cell string) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	err := encoder.Encode(object{
		"cells": []object{
			{"cell_type": "markdown", "id": "what-to-do", "metadata": object{}, "source": lines(intro)},
			{
				"cell_type": "code", "id": "executor", "metadata": object{"cellView": "form"}, "source": lines(cell),
				"execution_count": nil, "outputs": []any{},
			},
		},
		"metadata": object{
			"accelerator":   "GPU", // with gpuType, what Colab offers when the notebook is opened
			"colab":         object{"gpuType": "T4", "name": "colab-relay.ipynb", "provenance": []any{}},
			"kernelspec":    object{"display_name": "Python 3", "name": "python3"},
			"language_info": object{"name": "python"},
		},
		"nbformat":       4,
		"nbformat_minor": 5,
	})
	return text.Bytes(), err
}

// lines splits a cell's text as notebooks store it: each line with its newline, the
// last line without.
func lines(text string) []string {
	return strings.SplitAfter(strings.TrimRight(text, "\n"), "\n")
}

// defaultRuntime is the runtime whose secrets have no suffix.
const defaultRuntime = "default"

// SecretName returns the name of a runtime's secret on the page, such as EXECUTOR_SECRET
// for the default runtime and EXECUTOR_SECRET_MY_LAB for my-lab. Letters become upper
// case; every other character except digits becomes an underscore. Runtime names are
// ASCII. Two runtimes may get the same secret name: code that makes secrets must refuse
// the second one. The cell has the same rule in Python.
func SecretName(base, runtime string) string {
	if runtime == "" || runtime == defaultRuntime {
		return base
	}
	return base + "_" + notInSecretName().ReplaceAllString(strings.ToUpper(runtime), "_")
}

var notInSecretName = lazy.Regexp(`[^A-Z0-9]`)
