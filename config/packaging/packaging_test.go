package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"colabrelay/shared/tier"
)

// sample returns a release of small texts in place of programs.
func sample(version, releases string) *release {
	r := &release{
		version: version, number: strings.TrimPrefix(version, "v"), pack: "some-relay", executorPack: "some-executor", releases: releases,
		relay: map[string][]byte{}, executor: map[string][]byte{}, licence: []byte("licence\n"),
	}
	for _, platform := range relayPlatforms {
		r.relay[platform] = []byte("program relay " + platform)
	}
	for _, platform := range linuxes {
		r.executor[platform] = []byte("program executor " + platform)
	}
	return r
}

const address = "https://github.com/someone/colab-relay/releases/download"

// readsPrograms says whether a format needs real programs, which a sample has none of.
func readsPrograms(f format) bool { return f.name == "bill of materials" }

func madeOf(t *testing.T, r *release) map[string][]byte {
	t.Helper()
	files, err := r.make(slices.DeleteFunc(slices.Clone(formats), readsPrograms)...)
	must(t, err)
	byName := map[string][]byte{}
	for _, f := range files {
		byName[f.name] = f.data
	}
	return byName
}

func TestAReleaseHasAFileForEveryWayToInstall(t *testing.T) {
	for name, want := range map[string]struct {
		releases string
		only     []string // files that need an address
	}{
		"with an address": {address, []string{"cell.ipy", "colab-relay.ipynb", "marketplace.json", "server.json", "some-relay-1.2.3.tgz"}},
		"without":         {"", nil},
	} {
		t.Run(name, func(t *testing.T) {
			files := append([]string{
				"SHA256SUMS", "LICENSE", "executor-linux-amd64", "executor-linux-arm64",
				"colab-relay_1.2.3_darwin_universal.tar.gz", "colab-relay_1.2.3_linux_amd64.tar.gz", "colab-relay_1.2.3_linux_arm64.tar.gz",
				"colab-relay_1.2.3_windows_amd64.zip", "colab-relay_1.2.3_windows_arm64.zip",
				"some-executor_1.2.3_linux_amd64.tar.gz", "some-executor_1.2.3_linux_arm64.tar.gz",
				"some_relay-1.2.3-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64.whl",
				"some_relay-1.2.3-py3-none-manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64.whl",
				"some_relay-1.2.3-py3-none-macosx_12_0_universal2.whl", "some_relay-1.2.3-py3-none-win_amd64.whl", "some_relay-1.2.3-py3-none-win_arm64.whl",
				"some_executor-1.2.3-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64.whl",
				"some_executor-1.2.3-py3-none-manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64.whl",
				"some-relay-linux-x64-1.2.3.tgz", "some-relay-linux-arm64-1.2.3.tgz", "some-relay-darwin-1.2.3.tgz",
				"some-relay-win32-x64-1.2.3.tgz", "some-relay-win32-arm64-1.2.3.tgz",
				"some-relay-1.2.3.mcpb", "colab-relay-claude-code-1.2.3.zip",
				"linux.x64.colab-relay.tar.gz", "linux.arm64.colab-relay.tar.gz", "darwin.colab-relay.tar.gz", "win32.x64.colab-relay.tar.gz", "win32.arm64.colab-relay.tar.gz",
			}, want.only...)
			slices.Sort(files)
			if got := slices.Sorted(maps.Keys(madeOf(t, sample("v1.2.3", want.releases)))); !slices.Equal(got, files) {
				t.Errorf("the release has\n%q\nwant\n%q", got, files)
			}
		})
	}
}

func TestSumsCoverEveryOtherFile(t *testing.T) {
	made := madeOf(t, sample("v1.2.3", address))
	var want strings.Builder
	for _, name := range slices.Sorted(maps.Keys(made)) {
		if name != "SHA256SUMS" {
			want.WriteString(artifact{data: made[name]}.sha256() + "  " + name + "\n")
		}
	}
	if got := string(made["SHA256SUMS"]); got != want.String() {
		t.Errorf("SHA256SUMS is\n%s\nwant\n%s", got, want.String())
	}
}

func TestEqualProgramsMakeEqualReleases(t *testing.T) {
	tier.Long(t)
	first, second := madeOf(t, sample("v1.2.3", address)), madeOf(t, sample("v1.2.3", address))
	if !maps.EqualFunc(first, second, bytes.Equal) {
		t.Error("two releases of the same programs differ")
	}
}

// unpacked returns the files of an archive and their modes.
func unpacked(t *testing.T, name string, data []byte) map[string]entry {
	t.Helper()
	files := map[string]entry{}
	if strings.HasSuffix(name, "gz") {
		plain, err := gzip.NewReader(bytes.NewReader(data))
		must(t, err)
		archive := tar.NewReader(plain)
		for {
			header, err := archive.Next()
			if err == io.EOF {
				return files
			}
			must(t, err)
			if !header.ModTime.Equal(entryTime) || header.Uid != 0 || header.Uname != "" {
				t.Errorf("%s: %s depends on who packed it and when: %+v", name, header.Name, header)
			}
			content, err := io.ReadAll(archive)
			must(t, err)
			files[header.Name] = entry{header.Name, fs.FileMode(header.Mode), content}
		}
	}
	archive, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	must(t, err)
	for _, f := range archive.File {
		content, err := fs.ReadFile(archive, f.Name)
		must(t, err)
		files[f.Name] = entry{f.Name, f.Mode(), content}
	}
	return files
}

// Every text is filled in, every JSON file is JSON, and programs, and only they, may be
// run.
func TestPackagesAreFilledInAndTheirProgramsCanRun(t *testing.T) {
	for _, releases := range []string{address, ""} {
		t.Run(releases, func(t *testing.T) { checkPackages(t, madeOf(t, sample("v1.2.3", releases)), releases) })
	}
}

func checkPackages(t *testing.T, made map[string][]byte, releases string) {
	t.Helper()
	for archive, data := range made {
		if !slices.Contains([]string{".whl", ".tgz", ".gz", ".zip", ".mcpb"}, filepath.Ext(archive)) {
			continue
		}
		runs := 0
		for name, file := range unpacked(t, archive, data) {
			script := bytes.HasPrefix(file.data, []byte("#!"))
			isProgram := script || bytes.HasPrefix(file.data, []byte("program "))
			if want := map[bool]fs.FileMode{true: 0o755, false: 0o644}[isProgram]; file.mode != want {
				t.Errorf("%s: %s has mode %v, want %v", archive, name, file.mode, want)
			}
			if isProgram {
				runs++
			}
			if strings.HasSuffix(name, ".json") && !json.Valid(file.data) {
				t.Errorf("%s: %s is not JSON:\n%s", archive, name, file.data)
			}
			if releases == "" && bytes.Contains(file.data, []byte("open colab-relay.ipynb")) {
				t.Errorf("%s: %s names the notebook, which this release lacks", archive, name)
			}
			if (!isProgram || script) && placeholder.Match(file.data) {
				t.Errorf("%s: %s is not filled in:\n%s", archive, name, file.data)
			}
		}
		if runs == 0 {
			t.Errorf("%s holds no program", archive)
		}
	}
}

func TestBadSettingsAreRefused(t *testing.T) {
	for name, args := range map[string][]string{
		"package name":    {"-version=v1.0.0", "-package=Relay", "-executor-package=x"},
		"release address": {"-version=v1.0.0", "-package=r", "-executor-package=x", `-releases=https://e.example/"`},
		"no version":      {"-package=r", "-executor-package=x"},
		"three numbers":   {"-version=v1.2.3beta", "-package=r", "-executor-package=x"},
		"a release has":   {"-version=f8a5e15", "-package=r", "-executor-package=x"},
		"no such file":    {"-version=v1.0.0", "-package=r", "-executor-package=x", "-licence=../../LICENSE", "-programs=/nonexistent"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := run(args, io.Discard); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("packaging %q ended with %v, want an error with %q", args, err, name)
			}
		})
	}
}

// What git describe says of a checkout becomes one version, of the programs and of all packages.
func TestEveryCheckoutHasOneVersionInAllForms(t *testing.T) {
	tier.Long(t)
	for described, want := range map[string][2]string{ // of the programs, and in PEP 440's form
		"v1.2.3-0-gabc123-dirty": {"v1.2.4-dev.0.gabc123.dirty", "1.2.4.dev0+gabc123.dirty"},
		"v1.9.9-12-g0123456":     {"v1.9.10-dev.12.g0123456", "1.9.10.dev12+g0123456"},
		"v1.2.3-rc.1-0-gabc123":  {"v1.2.3-rc.1", "1.2.3rc1"},
		"v1.2.3-rc.1-4-gabc123":  {"v1.2.3-rc.1.dev.4.gabc123", "1.2.3rc2.dev4+gabc123"},
		"0123456":                {"v0.0.0-dev.g0123456", "0.0.0.dev0+g0123456"},
		"v1.2.3beta-3-gabc123":   {"v0.0.0-dev.gabc123", "0.0.0.dev0+gabc123"},
		"":                       {"v0.0.0-dev", "0.0.0.dev0"},
	} {
		out, err := exec.Command("./version.sh", described).Output()
		version := strings.TrimSpace(string(out))
		if err != nil || version != want[0] || !semantic.MatchString(version) {
			t.Errorf("%q is version %q (%v), want %q", described, version, err, want[0])
			continue
		}
		number := strings.TrimPrefix(version, "v")
		if got := pep440(number); got != want[1] {
			t.Errorf("%s is %q in Python's form, want %q", number, got, want[1])
		}
		for name, data := range madeOf(t, sample(version, "")) {
			checkVersion(t, name, data, number, want[1])
		}
	}
}

// checkVersion fails unless the name of a file, if it has a version, and the description in it
// have this number, or for a wheel this form of it.
func checkVersion(t *testing.T, name string, data []byte, number, python string) {
	t.Helper()
	wheel := strings.HasSuffix(name, ".whl")
	want, field := number, fmt.Sprintf("\"version\": %q", number)
	if wheel {
		want, field = python, "\nVersion: "+python+"\n"
	}
	if strings.Contains(name, "some") && !strings.Contains(name, want) {
		t.Errorf("the name %s does not have the version %s", name, want)
	}
	if !wheel && !strings.HasSuffix(name, ".tgz") && !strings.HasSuffix(name, ".mcpb") && !strings.Contains(name, "claude") {
		return
	}
	for file, content := range unpacked(t, name, data) {
		if base := filepath.Base(file); (strings.HasSuffix(base, "METADATA") || base == "package.json" || base == "manifest.json" || base == "plugin.json") && !strings.Contains(string(content.data), field) {
			t.Errorf("%s in %s does not have %q:\n%s", file, name, field, content.data)
		}
	}
}

// This test is a Go program, and so an example of one with modules.
func TestTheLicencesOfAllModulesAreIncluded(t *testing.T) {
	info, err := buildinfo.Read(bytes.NewReader(thisTest(t)))
	must(t, err)
	text, err := thirdParty([]built{{info: info}})
	must(t, err)
	for _, want := range []string{
		"Go and its standard library: LICENSE", "Copyright 2009 The Go Authors",
		"github.com/CycloneDX/cyclonedx-go v", "Apache License",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the licences lack %q", want)
		}
	}
}

func TestAModuleWithoutALicenceFailsTheRelease(t *testing.T) {
	folder := t.TempDir()
	must(t, os.WriteFile(filepath.Join(folder, "licenses_test.go"), nil, 0o600))
	err := writeLicence(&bytes.Buffer{}, "some/module", folder)
	if err == nil || !strings.Contains(err.Error(), `"some/module"`) {
		t.Errorf("the error is %v", err)
	}
}

const top = "../.."

func TestAReleaseNeedsAnAddress(t *testing.T) {
	kept := filepath.Join(t.TempDir(), "kept")
	must(t, os.WriteFile(kept, nil, 0o600))
	cmd := exec.CommandContext(t.Context(), "make", "release", "RELEASES=", "VERSION=v1.0.0", "DIST="+filepath.Dir(kept))
	cmd.Dir = top
	cmd.Env = slices.DeleteFunc(os.Environ(), func(pair string) bool { return strings.HasPrefix(pair, "MAKE") })
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "make release: RELEASES is empty: set it to") {
		t.Errorf("make release without an address: %v\n%s", err, out)
	}
	if _, err := os.Stat(kept); err != nil {
		t.Errorf("it changed the folder of the release: %v", err)
	}
}

// installs is a command that installs or runs a package, which it captures. ours is a name
// of our packages.
var (
	installs = regexp.MustCompile(`\b(?:(?:pip3?|pipx|uv tool|uv pip|npm) (?:install|run|exec)|uvx|npx)(?: +-\S+)* +([^\s` + "`" + `]+)`)
	ours     = regexp.MustCompile(`^colab[-_]relay[\w-]*([@=].*)?$`)
)

// byName reports whether a text installs one of our packages by its name, which on an index
// is anybody's until we have published it there.
func byName(text string) bool {
	for _, match := range installs.FindAllStringSubmatch(text, -1) {
		if ours.MatchString(match[1]) {
			return true
		}
	}
	return false
}

func TestDocumentsInstallFromFilesAndAddressesOnly(t *testing.T) {
	read := 0
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if d.IsDir() && path != top && strings.HasPrefix(d.Name(), ".") && d.Name() != ".github" {
				return filepath.SkipDir
			}
			return err
		}
		if !slices.Contains([]string{".md", ".txt", ".ipynb", ".ipy"}, filepath.Ext(path)) {
			return nil
		}
		text, err := os.ReadFile(path)
		if read++; byName(string(text)) {
			t.Errorf("%s installs a package by a name that is not ours yet", path)
		}
		return err
	})
	if err != nil || read < 10 {
		t.Errorf("%d documents: %v", read, err)
	}
}

// must ends the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
