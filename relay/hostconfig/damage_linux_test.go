package hostconfig

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/shared/damage"
	"colabrelay/shared/tier"
)

// Hosts' files belong to other programs: a damaged one is neither changed nor renamed.
func TestDamagedFilesOfHostsAreReportedAndNotChanged(t *testing.T) {
	tier.Long(t)
	const before = ".before-colab-relay"
	moved := Command{Path: "/elsewhere/colab-relay", Args: []string{"serve"}}
	for name, text := range map[string]string{
		"cursor": `{"theme": "dark", "mcpServers": {"a": {"command": "x"}}}` + "\n",
		"codex":  "model = \"m\"\n[mcp_servers.a]\ncommand = \"x\"\n",
		"vscode": "// mine\n{\"servers\": {\"a\": {\"command\": \"x\"},}}\n",
	} {
		h := host(t, name)
		targetIn := func(dir string) Target { return Target{Host: h, Path: filepath.Join(dir, "config")} }
		damage.Files{
			Make: func(t testing.TB, dir string) {
				if err := os.WriteFile(filepath.Join(dir, "config"), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				c, err := Plan(targetIn(dir), Command{Path: "/opt/colab-relay", Args: []string{"serve"}})
				if err != nil {
					t.Fatal(err)
				}
				if err := c.Write(); err != nil {
					t.Fatal(err)
				}
			},
			Use: func(_ testing.TB, dir string) (found, said string) {
				program, err := Installed(targetIn(dir))
				planned, planErr := Plan(targetIn(dir), moved)
				removed, removeErr := PlanRemoval(targetIn(dir))
				return fmt.Sprintf("%s\n%s\n%s", program, planned.new, removed.new), fmt.Sprintln(err, planErr, removeErr)
			},
			Damage: []string{"config", "config" + before},
			Harmless: func(file, kind, found string) bool {
				// An error names what a link leads to. A copy is used only if it fits, and JSON or
				// TOML that can be read is a person's.
				return strings.HasPrefix(kind, "a link to a") || strings.HasPrefix(found, "/opt/colab-relay\n") || strings.HasSuffix(file, before)
			},
			MaxAlloc: 10 * maxFile,
		}.Test(t)
	}
}
