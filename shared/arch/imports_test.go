package arch

import (
	"slices"
	"strings"
	"testing"
)

// allowed lists, for each package, the packages of this module that it may import. Test
// files may import more; see mayImportInTest.
var allowed = map[string][]string{
	"executor/tunnel/ngrok":      {"executor/tunnel"},
	"executor/tunnel/child":      {"executor/account", "executor/tunnel"},
	"executor/tunnel/tunneltest": {"executor/tunnel", "shared/within"},
	"executor/account":           {"shared/bounded"},
	"executor/audit":             {"executor/logfile", "shared/contract"},
	"executor/enrolldir":         {"shared/bounded", "shared/keep"},
	"executor/logfile":           {},
	"executor/statedir":          {"shared/bounded", "shared/keep"},

	"config/packaging":           {"colab-bootstrap"},
	"config/packaging/installed": {},

	"colab-bootstrap":                {"shared/enrollment", "shared/lazy"},
	"config":                         {},
	"executor":                       {"executor/account", "executor/api", "executor/audit", "executor/enrolldir", "executor/execution", "executor/files", "executor/job", "executor/journal", "executor/kernel", "executor/logfile", "executor/probe", "executor/statedir", "executor/tunnel", "executor/tunnel/child", "executor/tunnel/ngrok", "executor/uploads", "shared/auth", "shared/bounded", "shared/console", "shared/contract", "shared/enrollment", "shared/filename", "shared/keep"},
	"executor/api":                   {"executor/audit", "executor/execution", "executor/files", "executor/job", "executor/journal", "executor/kernel", "executor/variables", "executor/probe", "executor/uploads", "shared/bounded", "shared/auth", "shared/contract", "shared/line", "shared/seal"},
	"executor/comm":                  {"executor/jupyter", "shared/bounded", "shared/widgets"},
	"executor/execution":             {"executor/comm", "executor/journal", "executor/jupyter", "executor/kernel", "shared/contract", "shared/widgets"},
	"executor/files":                 {"executor/account", "shared/contract", "shared/filename", "shared/partfile"},
	"executor/files/filestest":       {"shared/within"},
	"executor/kernel/kerneltest":     {"executor/kernel", "shared/stacks", "shared/within"},
	"executor/job":                   {"executor/execution", "executor/journal", "shared/contract", "shared/kernelpy"},
	"executor/journal":               {"shared/keep", "shared/bounded", "shared/contract"},
	"executor/jupyter":               {"shared/bounded"},
	"executor/kernel":                {"executor/account", "executor/jupyter", "shared/bounded", "shared/contract", "shared/keep", "shared/kernelpy"},
	"executor/variables":             {"executor/jupyter", "shared/contract", "shared/kernelpy"},
	"executor/probe":                 {"executor/account", "shared/contract", "shared/kernelpy"},
	"executor/tunnel":                {},
	"executor/uploads":               {"executor/files", "shared/keep", "shared/bounded", "shared/contract", "shared/partfile", "shared/ranges"},
	"executor/tunnel/ngroktest":      {},
	"relay":                          {"relay/cli", "relay/cli/files", "relay/cli/nb", "relay/cli/runs", "relay/cli/serve", "relay/cli/setup", "relay/cli/vm", "relay/config", "relay/terminal", "relay/op", "shared/console"},
	"relay/cli":                      {"colab-bootstrap", "relay/bridge", "relay/client", "relay/config", "relay/hint", "relay/history", "relay/nbrun", "relay/notebook", "relay/op", "relay/page", "relay/pairing", "relay/plain", "relay/progress", "relay/remoterun", "relay/runlist", "relay/runtimes", "relay/suggest", "relay/terminal", "relay/terminal/inline", "relay/toolsets", "relay/transfer", "relay/vm", "relay/vm/colabapi", "relay/vm/colabcli", "shared/auth", "shared/bounded", "shared/contract", "shared/filename"},
	"relay/cli/files":                {"relay/cli", "relay/config", "relay/plain", "relay/terminal", "relay/op", "relay/transfer", "shared/filename"},
	"relay/cli/nb":                   {"relay/cells", "relay/cli", "relay/config", "relay/nbrun", "relay/notebook", "relay/remoterun", "relay/terminal", "relay/op", "shared/contract", "shared/filename"},
	"relay/cli/page":                 {},
	"relay/cli/runs":                 {"relay/cli", "relay/client", "relay/config", "relay/export", "relay/history", "relay/nbrun", "relay/pairing", "relay/plain", "relay/remoterun", "relay/runlist", "relay/terminal", "relay/op", "relay/transfer", "shared/bounded", "shared/contract", "shared/filename", "shared/lazy"},
	"relay/cli/serve":                {"relay/browser", "relay/cli", "relay/config", "relay/mcp", "relay/notebook", "relay/page", "relay/runtimes", "relay/terminal", "relay/op", "relay/toolsets", "shared/console"},
	"relay/cli/setup":                {"colab-bootstrap", "relay/cli", "relay/config", "relay/doctor", "relay/hostconfig", "relay/pairing", "relay/plain", "relay/program", "relay/sshhost", "relay/suggest", "relay/terminal", "relay/op", "relay/toolsets", "relay/vm", "shared/auth", "shared/bounded", "shared/contract", "shared/filename"},
	"relay/cli/vm":                   {"relay/browser", "relay/cli", "relay/config", "relay/terminal", "relay/vm", "relay/vm/colabapi"},
	"relay/browser":                  {"relay/environ"},
	"relay/bridge":                   {"colab-bootstrap", "relay/output", "relay/page", "relay/pairing", "relay/plain", "shared/auth", "shared/enrollment", "shared/keep"},
	"relay/cells":                    {"relay/checkpoint", "relay/nbrun", "relay/notebook", "relay/output", "relay/page", "relay/pairing", "relay/plain", "relay/progress", "relay/render", "shared/contract", "shared/memory", "shared/widgets"},
	"relay/checkpoint":               {"shared/bounded", "shared/filename", "shared/keep"},
	"relay/jobs":                     {"relay/client", "shared/contract"},
	"relay/chunked":                  {"relay/checkpoint", "relay/jobs", "relay/kernelstate", "relay/plain", "shared/bounded", "shared/contract", "shared/keep", "shared/kernelpy"},
	"relay/client":                   {"relay/plain", "shared/bounded", "shared/auth", "shared/contract", "shared/lazy", "shared/line", "shared/memory", "shared/seal"},
	"relay/config":                   {"relay/chunked", "relay/pairing", "relay/program", "relay/render", "relay/toolsets", "relay/transfer", "shared/bounded", "shared/filename", "shared/lazy"},
	"relay/config/configtest":        {},
	"relay/doctor":                   {"relay/client", "relay/config", "relay/hint", "relay/hostconfig", "relay/pairing", "relay/plain", "relay/program", "relay/terminal", "relay/op", "shared/contract"},
	"relay/hint":                     {"relay/bridge", "relay/cells", "relay/checkpoint", "relay/chunked", "relay/client", "relay/hostconfig", "relay/jobs", "relay/kernelcall", "relay/kernelstate", "relay/nbrun", "relay/notebook", "relay/page", "relay/pairing", "relay/runlist", "relay/transfer", "relay/vm", "shared/contract", "shared/filename"},
	"relay/environ":                  {},
	"relay/export":                   {"relay/history", "relay/notebook", "relay/output", "relay/plain", "relay/progress", "relay/render", "shared/contract", "shared/keep"},
	"relay/history":                  {"relay/client", "relay/output", "shared/bounded", "shared/contract", "shared/keep", "shared/lazy", "shared/memory", "shared/ranges"},
	"relay/hostconfig":               {"relay/plain", "relay/program", "relay/suggest", "shared/bounded", "shared/keep", "shared/lazy"},
	"relay/nbrun":                    {"relay/checkpoint", "relay/client", "relay/jobs", "relay/kernelcall", "relay/kernelstate", "relay/notebook", "relay/output", "relay/parameters", "relay/plain", "relay/progress", "relay/suggest", "shared/keep", "shared/bounded", "shared/contract", "shared/kernelpy"},
	"relay/mcp":                      {"relay/plain", "relay/op", "shared/bounded", "shared/console"},
	"relay/notebook":                 {"relay/output", "relay/plain", "relay/suggest", "shared/bounded", "shared/filename", "shared/keep", "shared/lazy", "shared/widgets"},
	"relay/output":                   {"relay/plain", "shared/bounded", "shared/contract", "shared/filename", "shared/memory", "shared/widgets"},
	"relay/page":                     {"relay/plain", "shared/bounded", "shared/keep"},
	"relay/program":                  {"relay/environ", "shared/bounded", "shared/keep", "shared/lazy"},
	"relay/progress":                 {"relay/transfer"},
	"relay/pairing":                  {"relay/plain", "relay/suggest", "shared/auth", "shared/keep", "shared/lazy"},
	"relay/parameters":               {"relay/notebook", "shared/lazy"},
	"relay/plain":                    {"shared/contract", "shared/filename"},
	"relay/remoterun":                {"relay/client", "relay/hint", "relay/history", "relay/output", "relay/plain", "relay/render", "relay/runlist", "relay/runtimes", "relay/terminal", "relay/terminal/inline", "shared/bounded", "shared/contract", "shared/kernelpy", "shared/lazy", "shared/widgets"},
	"relay/render":                   {"relay/output", "relay/plain", "shared/bounded", "shared/contract", "shared/diskspace", "shared/filename", "shared/lazy", "shared/memory"},
	"relay/runlist":                  {"relay/client", "relay/history", "relay/plain", "shared/contract", "shared/lazy"},
	"relay/runtimes":                 {"relay/client", "relay/pairing"},
	"relay/sshhost":                  {"relay/client", "relay/environ", "relay/pairing", "relay/plain", "relay/vm", "shared/auth", "shared/contract"},
	"relay/suggest":                  {},
	"relay/terminal":                 {"relay/plain"},
	"relay/terminal/inline":          {},
	"relay/kernelcall":               {"relay/client", "shared/contract", "shared/kernelpy"},
	"relay/kernelstate":              {"relay/checkpoint", "relay/client", "relay/kernelcall", "relay/transfer", "shared/bounded", "shared/contract", "shared/filename", "shared/keep", "shared/kernelpy", "shared/lazy"},
	"relay/op":                       {"relay/bridge", "relay/browser", "relay/cells", "relay/checkpoint", "relay/chunked", "relay/client", "relay/hint", "relay/kernelcall", "relay/kernelstate", "relay/nbrun", "relay/notebook", "relay/page", "relay/pairing", "relay/plain", "relay/progress", "relay/render", "relay/runlist", "relay/runtimes", "relay/terminal", "relay/toolsets", "relay/transfer", "relay/vm", "shared/bounded", "shared/contract", "shared/filename", "shared/kernelpy", "shared/lazy", "shared/memory"},
	"relay/toolsets":                 {},
	"relay/vm/colabapi":              {"relay/browser", "relay/client", "relay/plain", "relay/vm", "shared/bounded", "shared/keep", "shared/lazy"},
	"relay/vm/colabapi/colabapitest": {"relay/vm", "relay/vm/colabapi", "relay/vm/vmtest", "shared/e2e/harness", "shared/freeport", "shared/stacks"},
	"relay/vm":                       {"colab-bootstrap", "relay/client", "relay/pairing", "relay/plain", "relay/suggest", "shared/keep", "shared/auth", "shared/bounded", "shared/contract", "shared/lazy"},
	"relay/vm/colabcli":              {"relay/environ", "relay/plain", "relay/vm", "shared/keep", "shared/bounded", "shared/lazy"},
	"relay/vm/colabcli/colabclitest": {"shared/stacks"},
	"relay/vm/vmtest":                {"relay/vm", "shared/e2e/harness", "shared/stacks", "shared/within"},
	"relay/transfer":                 {"relay/client", "relay/plain", "shared/keep", "shared/bounded", "shared/contract", "shared/diskspace", "shared/filename", "shared/lazy", "shared/memory", "shared/partfile", "shared/ranges"},
	"shared/arch":                    {},
	"shared/auth":                    {"shared/bounded", "shared/contract", "shared/seal", "shared/filename"},
	"shared/line":                    {"shared/auth", "shared/bounded", "shared/contract", "shared/memory", "shared/seal"},
	"shared/line/linetest":           {"shared/auth", "shared/bounded", "shared/contract", "shared/line"},
	"shared/keep":                    {"shared/bounded"},
	"shared/bounded":                 {},
	"shared/console":                 {},
	"shared/contract":                {"shared/lazy"},
	"shared/e2e":                     {},
	"shared/e2e/attack":              {"relay/client"},
	"shared/e2e/fakevm":              {"shared/auth", "shared/contract", "shared/line/linetest"},
	"shared/e2e/bench":               {"executor/jupyter", "relay/client", "relay/jobs", "relay/transfer", "shared/auth", "shared/contract", "shared/e2e/harness", "shared/freeport", "shared/stacks"},
	"shared/e2e/demo":                {"shared/e2e/harness", "shared/stacks"},
	"shared/e2e/interop":             {"relay/client", "relay/nbrun", "relay/notebook", "relay/parameters", "shared/auth", "shared/e2e/harness", "shared/stacks"},
	"shared/e2e/browser":             {"shared/e2e/harness", "shared/e2e/standin", "shared/stacks"},
	"shared/e2e/faults":              {"relay/checkpoint", "relay/chunked", "relay/client", "shared/auth", "shared/contract", "shared/e2e/harness", "shared/freeport", "shared/smalldisk", "shared/stacks"},
	"shared/e2e/harness":             {"shared/contract", "shared/freeport", "shared/stacks"},
	"shared/e2e/standin":             {"executor/jupyter"},
	"shared/e2e/hostilevm":           {"shared/contract", "shared/e2e/fakevm"},
	"shared/e2e/proxies":             {"shared/auth", "shared/e2e/harness", "shared/freeport", "shared/stacks"},
	"shared/e2e/hosts":               {"relay/pairing", "shared/auth", "shared/e2e/harness", "shared/stacks"},
	"shared/damage":                  {"shared/memorydir"},
	"shared/diskspace":               {},
	"shared/enrollment":              {"shared/auth"},
	"shared/filename":                {"shared/lazy"},
	"shared/freeport":                {},
	"shared/lazy":                    {},
	"shared/kernelpy":                {},
	"shared/privileged":              {"shared/stacks"},
	"shared/partfile":                {"shared/contract", "shared/ranges"},
	"shared/ranges":                  {"shared/contract"},
	"shared/seal":                    {},
	"shared/memory":                  {},
	"shared/memorydir":               {},
	"shared/smalldisk":               {},
	"shared/sshd":                    {"shared/stacks"},
	"shared/stacks":                  {},
	"shared/tier":                    {},
	"shared/widgets":                 {"shared/lazy"},
	"shared/within":                  {},
}

// testOnly are packages that must not be linked into either program.
var testOnly = []string{"executor/files/filestest", "executor/kernel/kerneltest", "executor/tunnel/ngroktest", "executor/tunnel/tunneltest", "relay/config/configtest", "relay/vm/colabapi/colabapitest", "relay/vm/vmtest", "shared/damage", "shared/e2e", "shared/e2e/attack", "shared/e2e/bench", "shared/e2e/browser", "shared/e2e/demo", "shared/e2e/fakevm", "shared/e2e/faults", "shared/e2e/harness", "shared/e2e/hostilevm", "shared/e2e/hosts", "shared/e2e/interop", "shared/e2e/proxies", "shared/e2e/standin", "shared/freeport", "shared/line/linetest", "shared/memorydir", "shared/privileged", "shared/smalldisk", "shared/sshd", "shared/stacks", "shared/tier", "shared/within"}

// homes lists the packages that may import a third-party module. A large module has one
// home, so that it can be replaced in one place. Tests and the packages in testOnly may
// import all of them.
var homes = map[string][]string{
	"github.com/CycloneDX/cyclonedx-go": {"config/packaging"},

	"github.com/charmbracelet/x/ansi": {"relay/render", "relay/terminal"},
	"github.com/coder/websocket":      {"relay/page", "relay/vm/colabapi"},
	"github.com/go-chi/chi/v5":        {"executor/api"},
	"github.com/go-chi/httprate":      {"executor/api"},
	"github.com/mark3labs/mcp-go":     {"relay/mcp", "relay/page"},
	"github.com/shirou/gopsutil/v3":   {"executor/probe"},
	"github.com/spf13/cobra":          {"relay", "relay/cli", "relay/cli/files", "relay/cli/nb", "relay/cli/runs", "relay/cli/serve", "relay/cli/setup", "relay/cli/vm"},
	"github.com/pelletier/go-toml/v2": {"relay/hostconfig"},
	"github.com/spf13/pflag":          {"relay/cli", "relay/cli/runs", "relay/config"},
	"github.com/tailscale/hujson":     {"relay/hostconfig"},
	"golang.ngrok.com/ngrok/v2":       {"executor/tunnel/ngrok"},
	"golang.org/x/term":               {"relay/terminal"},

	// Small modules may be used where they are needed.
	"github.com/aymanbagabas/go-udiff":   {"relay/notebook"},
	"github.com/cenkalti/backoff/v5":     {"executor/jupyter", "executor/tunnel", "relay/client", "relay/vm/colabapi"},
	"github.com/gofrs/flock":             {"shared/keep"},
	"github.com/google/uuid":             {"executor/statedir", "executor/api", "executor/journal", "executor/kernel", "relay/vm/colabapi"},
	"github.com/hashicorp/golang-lru/v2": {"executor/files"},
	"github.com/natefinch/atomic":        {"shared/keep"},
	"golang.org/x/net":                   {"relay/browser", "relay/page"},
	"golang.org/x/oauth2":                {"relay/vm/colabapi"},
	"golang.org/x/sync":                  {"executor", "executor/jupyter", "executor/probe", "relay/mcp", "relay/transfer", "shared/memory"},
	"golang.org/x/sys":                   {"executor", "executor/account", "executor/files", "executor/kernel", "executor/statedir", "executor/uploads", "relay/notebook", "relay/terminal"},
}

// testModules may be imported by all tests, and by neither program.
var testModules = []string{
	"github.com/Shopify/toxiproxy/v2", "github.com/dunglas/httpsfv", "github.com/google/go-cmp", "github.com/rogpeppe/go-internal",
	"github.com/rs/zerolog", "github.com/santhosh-tekuri/jsonschema/v6", "go.uber.org/goleak", "golang.ngrok.com/muxado/v2", "golang.org/x/crypto",
}

func TestImportsFollowTheTable(t *testing.T) {
	for _, f := range sources(t) {
		if _, ok := allowed[f.Package]; !ok {
			t.Errorf("%s: package %q has no row in shared/arch/imports_test.go: add one", f.Path, f.Package)
			continue
		}
		for _, path := range f.Imports {
			if why := refusal(f, path); why != "" {
				t.Errorf("%s imports %q: %s", f.Path, path, why)
			}
		}
	}
}

// refusal returns why a file may not import a path and what to do, or "" if it may.
func refusal(f file, path string) string {
	if own, ok := strings.CutPrefix(path, module+"/"); ok {
		return refusalOfOurs(f, own)
	}
	if first, _, _ := strings.Cut(path, "/"); !strings.Contains(first, ".") {
		return "" // the standard library
	}
	if within(path, testModules) {
		if f.Test || slices.Contains(testOnly, f.Package) {
			return ""
		}
		return "this module is for tests; no program may link it"
	}
	for mod, packages := range homes {
		if !within(path, []string{mod}) {
			continue
		}
		if f.Test || slices.Contains(testOnly, f.Package) || slices.Contains(packages, f.Package) {
			return ""
		}
		return "its home is " + strings.Join(packages, ", ") + ": use what that package offers, or move the home in shared/arch/imports_test.go"
	}
	return "this module has no home: name one in shared/arch/imports_test.go"
}

func refusalOfOurs(f file, own string) string {
	switch {
	case slices.Contains(allowed[f.Package], own):
		return ""
	case !f.Test && slices.Contains(testOnly, own) && !slices.Contains(testOnly, f.Package):
		return "that package is for tests; no program may link it"
	case f.Test && mayImportInTest(f.Package, own):
		return ""
	}
	return "the table allows " + f.Package + " only " + strings.Join(allowed[f.Package], ", ") +
		": pass what is needed in from above, or change the table in shared/arch/imports_test.go and say why in ARCHITECTURE.md"
}

// mayImportInTest reports whether a test may import a package: its own, a shared one, a
// test helper, or one of the same program. The tests of shared/e2e may import everything.
func mayImportInTest(pkg, own string) bool {
	program := func(p string) string { first, _, _ := strings.Cut(p, "/"); return first }
	return pkg == "shared/e2e" || slices.Contains(testOnly, own) || program(own) == "shared" || program(own) == program(pkg)
}

func within(path string, modules []string) bool {
	return slices.ContainsFunc(modules, func(m string) bool { return path == m || strings.HasPrefix(path, m+"/") })
}

// An unused permission would let a new import change the architecture unnoticed.
func TestTableHasNoUnusedPermissions(t *testing.T) {
	needed := map[[2]string]bool{}
	for _, f := range sources(t) {
		for _, path := range f.Imports {
			needed[permission(f, path)] = true
		}
	}
	check := func(pkg, path string) {
		if !needed[[2]string{pkg, path}] {
			t.Errorf("%s may import %s and does not: remove that from shared/arch/imports_test.go", pkg, path)
		}
	}
	for pkg, imports := range allowed {
		for _, own := range imports {
			check(pkg, own)
		}
	}
	for mod, packages := range homes {
		for _, pkg := range packages {
			check(pkg, mod)
		}
	}
}

// permission returns the entry that an import needs, or "" if a general rule allows the
// import.
func permission(f file, path string) [2]string {
	if own, ok := strings.CutPrefix(path, module+"/"); ok {
		if f.Test && mayImportInTest(f.Package, own) {
			return [2]string{}
		}
		return [2]string{f.Package, own}
	}
	if f.Test || slices.Contains(testOnly, f.Package) {
		return [2]string{}
	}
	for mod := range homes {
		if within(path, []string{mod}) {
			return [2]string{f.Package, mod}
		}
	}
	return [2]string{}
}
