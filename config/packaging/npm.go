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
// command, so that npx and npm install it from one file; and the package for all
// platforms, which installs the right one of them.
//
// The package for all platforms names the others by their address in the release and not
// by name: until they are published, their names on npm are anybody's. So it needs an
// address.
func npmPackages(r *release) ([]artifact, error) {
	var files []artifact
	addresses := map[string]string{}
	for _, p := range npmPlatforms {
		bin := "bin/" + command + exe(p.platform)
		description := r.fill(npmPlatformPackage, "@PLATFORM@", p.name, "@OS@", p.os, "@CPU@", p.cpu, "@BIN@", bin)
		file, err := r.npm(r.pack+"-"+p.name, description, program("package/"+bin, r.relay[p.platform]))
		if err != nil {
			return nil, err
		}
		files = append(files, file)
		addresses[r.pack+"-"+p.name] = r.url(file.name)
	}
	if r.releases == "" {
		return files, nil
	}
	dependencies, err := json.MarshalIndent(addresses, "  ", "  ")
	if err != nil {
		return nil, err
	}
	description := r.fill(npmPackage, `"@DEPENDENCIES@"`, string(dependencies))
	file, err := r.npm(r.pack, description, program("package/bin/"+command+".js", r.fill(npmLauncher)))
	return append(files, file), err
}

func (r *release) npm(name string, description []byte, bin entry) (artifact, error) {
	file, err := tarball(text("package/package.json", description), bin, text("package/README.md", r.fill(npmReadme)), text("package/LICENSE", r.licence))
	return artifact{strings.Join([]string{name, r.number}, "-") + ".tgz", file}, err
}
