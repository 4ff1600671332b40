package main

import (
	_ "embed"
	"strings"
)

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
	reversed := make([]string, 0, len(labels))
	for i := len(labels) - 1; i >= 0; i-- {
		reversed = append(reversed, labels[i])
	}
	return strings.Join(reversed, ".") + "/" + command
}
