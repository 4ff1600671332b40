package main

import (
	_ "embed"
	"strings"
)

//go:embed gemini/gemini-extension.json
var geminiManifest string

// geminiExtensions returns the extension of Gemini CLI for each platform. Gemini chooses the
// file of a GitHub release by the beginning of its name: its platform and processor in
// node's words, or its platform alone.
func geminiExtensions(r *release) ([]artifact, error) {
	var files []artifact
	for _, p := range npmPlatforms {
		archive, err := tarball(
			text("gemini-extension.json", r.fill(geminiManifest)),
			program("bin/"+command+exe(p.platform), r.relay[p.platform]),
			text("LICENSE", r.licence),
		)
		if err != nil {
			return nil, err
		}
		files = append(files, artifact{strings.ReplaceAll(p.name, "-", ".") + "." + command + ".tar.gz", archive})
	}
	return files, nil
}
