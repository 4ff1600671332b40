package main

import (
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

//go:embed wheel/relay-METADATA
var relayMetadata string

//go:embed wheel/executor-METADATA
var executorMetadata string

// wheelTags are the platforms of wheels (PyPA, Platform compatibility tags). The programs are
// static, so any libc will do; the tags name the oldest ones that installers know. Go 1.26
// needs macOS 12.
var wheelTags = map[string][]string{
	"linux-amd64":   {"manylinux_2_17_x86_64", "manylinux2014_x86_64", "musllinux_1_1_x86_64"},
	"linux-arm64":   {"manylinux_2_17_aarch64", "manylinux2014_aarch64", "musllinux_1_1_aarch64"},
	universal:       {"macosx_12_0_universal2"},
	"windows-amd64": {"win_amd64"},
	"windows-arm64": {"win_arm64"},
}

// wheels returns the packages for pip, pipx and uv. The command they install is the
// program itself, not a Python script.
func wheels(r *release) ([]artifact, error) {
	var files []artifact
	for _, platform := range relayPlatforms {
		w := wheel{r.pack, command, platform, string(r.fill(relayMetadata, "@PEP440@", pep440(r.number)))}
		file, err := w.pack(r, r.relay[platform])
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	for _, platform := range linuxes {
		w := wheel{r.executorPack, r.executorPack, platform, string(r.fill(executorMetadata, "@PEP440@", pep440(r.number)))}
		file, err := w.pack(r, r.executor[platform])
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}

// wheel describes a binary distribution (PyPA, Binary distribution format 1.0).
type wheel struct{ name, command, platform, metadata string }

func (w wheel) pack(r *release, data []byte) (artifact, error) {
	base := strings.ReplaceAll(w.name, "-", "_") + "-" + pep440(r.number)
	info := base + ".dist-info/"
	head := "Wheel-Version: 1.0\nGenerator: colab-relay packaging\nRoot-Is-Purelib: false\n"
	for _, tag := range wheelTags[w.platform] {
		head += "Tag: py3-none-" + tag + "\n"
	}
	entries := []entry{
		program(base+".data/scripts/"+w.command+exe(w.platform), data),
		text(info+"licenses/LICENSE", r.licence),
		text(info+"METADATA", []byte(w.metadata)),
		text(info+"WHEEL", []byte(head)),
	}
	entries = append(entries, text(info+"RECORD", record(entries, info)))
	file, err := zipFile(entries...)
	return artifact{base + "-py3-none-" + strings.Join(wheelTags[w.platform], ".") + ".whl", file}, err
}

// record lists the files of a wheel with their digests and sizes, and itself without.
func record(entries []entry, info string) []byte {
	var lines []byte
	for _, e := range entries {
		sum := sha256.Sum256(e.data)
		lines = fmt.Appendf(lines, "%s,sha256=%s,%d\n", e.name, base64.RawURLEncoding.EncodeToString(sum[:]), len(e.data))
	}
	return append(lines, info+"RECORD,,\n"...)
}

var (
	preRelease = regexp.MustCompile(`^(alpha|beta|rc)[.-]?(\d+)$`)
	// developed is a build that is no release, as version.sh writes it: the pre-release before
	// it or "", commits since, and what names the commit.
	developed = regexp.MustCompile(`^(?:(.+)\.)?dev(?:\.(\d+))?(?:\.(g[0-9a-f]+(?:\.dirty)?))?$`)
)

// pep440 writes a semantic version as PEP 440 has it: 1.2.3-rc.1 is 1.2.3rc1, and
// 1.2.4-dev.5.gabc is 1.2.4.dev5+gabc. A build after rc.1 comes before rc2. A pre-release that
// PEP 440 has no word for is a development release, which comes before all others of its
// number.
func pep440(number string) string {
	base, pre, _ := strings.Cut(number, "-")
	suffix := ""
	if match := developed.FindStringSubmatch(pre); match != nil {
		pre, suffix = match[1], ".dev"+cmp.Or(match[2], "0")
		if match[3] != "" {
			suffix += "+" + match[3]
		}
	}
	match := preRelease.FindStringSubmatch(pre)
	switch {
	case pre == "":
		return base + suffix
	case match == nil:
		return base + ".dev0"
	}
	n, _ := strconv.Atoi(match[2]) // the largest int if there are too many digits
	if suffix != "" {
		n++
	}
	return base + map[string]string{"alpha": "a", "beta": "b", "rc": "rc"}[match[1]] + strconv.Itoa(n) + suffix
}

//go:embed npm/package.json
var npmPackage string

//go:embed npm/platform-package.json
var npmPlatformPackage string

//go:embed npm/launcher.js
var npmLauncher string

//go:embed npm/fetch.js
var npmFetch string

//go:embed npm/README.md
var npmReadme string

// npmPlatforms are the packages with a program: the platform in npm's words, its os, its
// cpu (an array in JSON) and the program's platform.
var npmPlatforms = []struct{ name, os, cpu, platform string }{
	{"linux-x64", "linux", `"x64"`, "linux-amd64"},
	{"linux-arm64", "linux", `"arm64"`, "linux-arm64"},
	{"darwin", "darwin", `"x64", "arm64"`, universal},
	{"win32-x64", "win32", `"x64"`, "windows-amd64"},
	{"win32-arm64", "win32", `"arm64"`, "windows-arm64"},
}

// npmPackages returns a package for each platform, which carries the program and its
// command, so that npx and npm install it from one file without a network; and the package
// for all platforms, which downloads the program of its own platform.
//
// The package for all platforms has no dependencies. By name, they would be anybody's until
// they are published. By address, npm downloads all of them to learn their platforms, tries
// for minutes if it can't, and then installs a command without a program. So its own script
// gets one file from the release, and it needs an address.
func npmPackages(r *release) ([]artifact, error) {
	var files []artifact
	sums := map[string]string{}
	for _, p := range npmPlatforms {
		bin := "bin/" + command + exe(p.platform)
		description := r.fill(npmPlatformPackage, "@PLATFORM@", p.name, "@OS@", p.os, "@CPU@", p.cpu, "@BIN@", bin)
		file, err := r.npm(r.pack+"-"+p.name, description, program("package/"+bin, r.relay[p.platform]))
		if err != nil {
			return nil, err
		}
		files = append(files, file)
		sums[p.name] = file.sha256()
	}
	if r.releases == "" {
		return files, nil
	}
	digests, err := json.MarshalIndent(sums, "", "  ")
	if err != nil {
		return nil, err
	}
	launcher := program("package/bin/"+command+".js", r.fill(npmLauncher))
	fetch := text("package/bin/fetch.js", r.fill(npmFetch, `"@SUMS@"`, string(digests)))
	file, err := r.npm(r.pack, r.fill(npmPackage), launcher, fetch)
	return append(files, file), err
}

func (r *release) npm(name string, description []byte, bin ...entry) (artifact, error) {
	entries := append([]entry{text("package/package.json", description)}, bin...)
	file, err := tarball(append(entries, text("package/README.md", r.fill(npmReadme)), text("package/LICENSE", r.licence))...)
	return artifact{strings.Join([]string{name, r.number}, "-") + ".tgz", file}, err
}
