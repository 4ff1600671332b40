package main

import (
	_ "embed"
	"encoding/json"
	"strings"
)

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
