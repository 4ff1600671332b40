package main

import (
	_ "embed"
	"slices"
	"strings"
)

//go:embed bundle/colab-relay.sh
var bundleLauncher string

// bundle returns the programs of all platforms in a folder, for packages that can't name
// one for each processor. There, colab-relay is a script on macOS and Linux; Windows adds
// .exe to that name. Windows on arm64 runs the program for amd64.
func (r *release) bundle(folder string) []entry {
	return []entry{
		program(folder+"/colab-relay", r.fill(bundleLauncher)),
		program(folder+"/colab-relay-linux-amd64", r.relay["linux-amd64"]),
		program(folder+"/colab-relay-linux-arm64", r.relay["linux-arm64"]),
		program(folder+"/colab-relay-macos", r.relay[universal]),
		program(folder+"/colab-relay.exe", r.relay["windows-amd64"]),
	}
}

//go:embed mcpb/manifest.json
var mcpbManifest string

//go:embed mcpb/server.json
var registryEntry string

// mcpBundle returns the bundle that Claude Desktop installs with a click (MCPB, manifest
// 0.3), and its entry for the MCP registry, which needs an address.
func mcpBundle(r *release) ([]artifact, error) {
	entries := append([]entry{text("manifest.json", r.fill(mcpbManifest))}, r.bundle("server")...)
	file, err := zipFile(append(entries, text("LICENSE", r.licence))...)
	if err != nil {
		return nil, err
	}
	bundle := artifact{r.pack + "-" + r.number + ".mcpb", file}
	if r.releases == "" {
		return []artifact{bundle}, nil
	}
	entry := r.fill(registryEntry, "@NAME@", registryName(r.releases), "@BUNDLE@", r.url(bundle.name), "@SHA256@", bundle.sha256())
	return []artifact{bundle, {"server.json", entry}}, nil
}

// registryName returns the name for the MCP registry: who publishes, in reverse DNS order,
// and what. The registry lets the owner of a GitHub account publish below io.github.OWNER,
// and the owner of a domain below that domain.
func registryName(releases string) string {
	_, rest, _ := strings.Cut(releases, "://")
	parts := strings.Split(rest, "/")
	host, _, _ := strings.Cut(parts[0], ":")
	if host == "github.com" && len(parts) > 1 {
		return "io.github." + parts[1] + "/" + command
	}
	labels := strings.Split(host, ".")
	slices.Reverse(labels)
	return strings.Join(labels, ".") + "/" + command
}

//go:embed plugin/plugin.json
var pluginManifest string

//go:embed plugin/mcp.json
var pluginServers string

//go:embed plugin/README.md
var pluginReadme string

//go:embed plugin/marketplace.json
var pluginMarketplace string

// plugin returns the plugin for Claude Code, as a folder that is also a marketplace with
// one plugin, and a marketplace that names its address, if there is one.
func plugin(r *release) ([]artifact, error) {
	entries := append([]entry{
		text(".claude-plugin/plugin.json", r.fill(pluginManifest)),
		text(".claude-plugin/marketplace.json", r.fill(pluginMarketplace, "@SOURCE@", `"./"`)),
		text(".mcp.json", r.fill(pluginServers)),
		text("README.md", r.fill(pluginReadme)),
	}, r.bundle("bin")...)
	file, err := zipFile(append(entries, text("LICENSE", r.licence))...)
	if err != nil {
		return nil, err
	}
	archive := artifact{"colab-relay-claude-code-" + r.number + ".zip", file}
	if r.releases == "" {
		return []artifact{archive}, nil
	}
	source := `{"source": "archive", "url": "` + r.url(archive.name) + `", "sha256": "` + archive.sha256() + `"}`
	return []artifact{archive, {"marketplace.json", r.fill(pluginMarketplace, "@SOURCE@", source)}}, nil
}

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
