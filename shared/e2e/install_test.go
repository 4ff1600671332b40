package e2e

import (
	"archive/zip"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

// scratchPython makes an environment that sees the packages of base and takes what is
// installed. Without withUV, no uv is beside its interpreter.
func scratchPython(t *testing.T, base stacks.Stack, withUV bool) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "venv")
	if out, err := exec.Command(base.Python, "-m", "venv", "--without-pip", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	sites, err := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(base.Python)), "lib", "python*", "site-packages"))
	must(t, err)
	own := filepath.Join(dir, "lib", filepath.Base(filepath.Dir(sites[0])), "site-packages")
	pth := "import site; site.addsitedir(" + fmt.Sprintf("%q", sites[0]) + ")\n" // base may have one of its own
	must(t, os.WriteFile(filepath.Join(own, "base.pth"), []byte(pth), 0o644))
	if withUV {
		must(t, os.Symlink(filepath.Join(filepath.Dir(base.Python), "uv"), filepath.Join(dir, "bin", "uv")))
	}
	return filepath.Join(dir, "bin", "python")
}

// wheel writes a wheel of one module into dir.
func wheel(t *testing.T, dir, name, version string, requires ...string) {
	t.Helper()
	info := name + "-" + version + ".dist-info/"
	metadata := fmt.Sprintf("Metadata-Version: 2.1\nName: %s\nVersion: %s\n", name, version)
	for _, r := range requires {
		metadata += "Requires-Dist: " + r + "\n"
	}
	files := [][2]string{
		{name + "/__init__.py", fmt.Sprintf("VERSION = %q\n", version)},
		{info + "METADATA", metadata},
		{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
	}
	var record strings.Builder
	f, err := os.Create(filepath.Join(dir, name+"-"+version+"-py3-none-any.whl"))
	must(t, err)
	defer f.Close()
	z := zip.NewWriter(f)
	for _, file := range append(files, [2]string{info + "RECORD", ""}) {
		fmt.Fprintf(&record, "%s,,\n", file[0])
		if file[1] == "" {
			file[1] = record.String()
		}
		w, err := z.Create(file[0])
		must(t, err)
		_, err = w.Write([]byte(file[1]))
		must(t, err)
	}
	must(t, z.Close())
}

func TestInstallPackages(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	installers := map[string]stacks.Stack{"pip": stacks.Old(t)}
	if s, ok := stacks.Data(t); ok {
		installers["uv"] = s
	}
	for installer, s := range installers {
		t.Run(installer, func(t *testing.T) {
			t.Parallel()
			e := startExecutor(t, harness.ExecutorConfig{Python: scratchPython(t, s, installer == "uv")})
			h := startHost(t, e.Ready.LocalURL, harness.HostConfig{})
			wheels := t.TempDir()
			for _, version := range []string{"1.0", "2.0"} {
				wheel(t, wheels, "alpha_one", version)
			}
			wheel(t, wheels, "beta", "1.0", "alpha-one<2")
			config := filepath.Join(wheels, "uv.toml")
			must(t, os.WriteFile(config, fmt.Appendf(nil, "no-index = true\nfind-links = [%q]\n", wheels), 0o644))
			offline := fmt.Sprintf("import os\nos.environ.update(PIP_NO_INDEX='1', PIP_FIND_LINKS=%q, PIP_CONFIG_FILE='/dev/null', UV_CONFIG_FILE=%q, UV_CACHE_DIR=%q, PATH='/usr/bin:/bin')", wheels, config, t.TempDir())
			want(t, quick(t, h, offline), map[string]any{"status": "succeeded"})
			checkInstalls(t, h, wheels)
		})
	}
}

func checkInstalls(t *testing.T, h *harness.Host, wheels string) {
	install := func(args map[string]any) harness.Answer { return call(t, h, "install_packages", args) }
	a := install(map[string]any{"packages": "alpha-one==1.0, beta>=1"})
	want(t, a, map[string]any{
		"success": true, "status": "succeeded", "restart_needed": "[]",
		"installed": "[map[name:alpha-one new:1.0 old:] map[name:beta new:1.0 old:]]",
	})
	if !strings.Contains(a.String("stdout"), "alpha-one: not installed → 1.0") {
		t.Error(a.Text)
	}
	want(t, quick(t, h, "import alpha_one; alpha_one.VERSION, len(In)"), map[string]any{"result": "('1.0', 3)"})
	want(t, install(map[string]any{"packages": "alpha-one"}), map[string]any{"success": true, "installed": "[]"})

	list := filepath.Join(wheels, "requirements.txt")
	must(t, os.WriteFile(list, []byte("# what is needed\nalpha_one >= 2 ; python_version > \"3\"  # the new one\n\n"), 0o644))
	a = install(map[string]any{"requirements_path": list, "upgrade": true})
	want(t, a, map[string]any{"success": true, "installed": "[map[name:alpha-one new:2.0 old:1.0]]", "restart_needed": "[alpha-one]"})
	if !strings.Contains(a.Text, "until the kernel restarts: alpha-one") {
		t.Error(a.Text)
	}
	want(t, quick(t, h, "alpha_one.VERSION"), map[string]any{"result": "'1.0'"})
	kernel := a.String("kernel_id")
	want(t, quick(t, h, "1"), map[string]any{"kernel_id": kernel})
}
