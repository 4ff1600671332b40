package main

import _ "embed"

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
