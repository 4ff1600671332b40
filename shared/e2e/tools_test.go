package e2e

import (
	"archive/zip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

// bigFile writes random bytes, which do not compress, and returns their SHA-256.
func bigFile(t testing.TB, path string, size int64) string {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sum := sha256.New()
	source := rand.NewChaCha8([32]byte{byte(size)})
	if _, err := io.CopyN(io.MultiWriter(f, sum), source, size); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

func fileDigest(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// Cut transfers continue where they were cut.
func TestFilesTravelBothWaysAcrossCuts(t *testing.T) {
	const size = 6 << 20
	laptop := t.TempDir()
	e := borrowExecutor(t, stacks.Old(t))
	w := newWire(t, e)
	h := startHost(t, "http://"+w.Addr, harness.HostConfig{Dir: laptop, Env: []string{"LOCAL_SAVE_DIR=" + laptop}})
	sum := bigFile(t, filepath.Join(laptop, "up.bin"), size)
	cuts := []int64{size / 4, size / 2, size * 3 / 4}

	w.CutAt(cuts...)
	sent := across(t, h, "upload_to_colab", map[string]any{"local_path": filepath.Join(laptop, "up.bin"), "remote_path": "big.bin"})
	want(t, sent, map[string]any{"success": true, "sha256": sum, "size_bytes": fmt.Sprint(float64(size))})
	if up, _, made := w.Passed(); made != len(cuts) || up > size*3/2 {
		t.Errorf("%d cuts, %d bytes sent of %d", made, up, size)
	}
	if got := fileDigest(t, filepath.Join(e.Config.Dir, "big.bin")); got != sum {
		t.Errorf("on the VM the SHA-256 is %s, want %s", got, sum)
	}

	w.CutAt(cuts...)
	got := across(t, h, "download_from_colab", map[string]any{"remote_path": "big.bin", "local_filename": "down.bin"})
	want(t, got, map[string]any{"success": true, "sha256": sum})
	if _, down, made := w.Passed(); made != len(cuts) || down > size*3/2 {
		t.Errorf("%d cuts, %d bytes received of %d", made, down, size)
	}
	if sum2 := fileDigest(t, got.String("local_path")); sum2 != sum {
		t.Errorf("on the laptop the SHA-256 is %s, want %s", sum2, sum)
	}
}

// across calls the tool until it is done.
func across(t *testing.T, h *harness.Host, tool string, args map[string]any) (a harness.Answer) {
	t.Helper()
	for range 20 { // a reconnect may outlast a call
		a = call(t, h, tool, args)
		if a.Error() != "tunnel_offline" && (a.IsError || a.Fields["can_continue"] != true) {
			break
		}
	}
	return a
}

// allTools starts an executor on a stack, and a host whose relay serves all toolsets.
func allTools(t *testing.T, s stacks.Stack, hold string) *harness.Host {
	t.Helper()
	e := borrowExecutor(t, s)
	return startHost(t, e.Ready.LocalURL, harness.HostConfig{Env: []string{"RELAY_TOOLSETS=all", "RELAY_HOLD=" + hold}})
}

const someFrames = `
import pandas as pd
class Loud:
    def __str__(self): print("__str__ ran"); return "loud"
    __repr__ = __str__
df = pd.DataFrame({"city": ["Bonn", "Ulm", "Bonn", None], "price": [3.5, 1.0, 2.0, None]})
loud = pd.DataFrame({"x": [1, 2], "o": pd.Series([Loud(), Loud()], dtype=object)})
`

func TestPreviewDataframe(t *testing.T) {
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		h := allTools(t, s, "40s")
		want(t, quick(t, h, someFrames+"before = len(In)"), map[string]any{"status": "succeeded"})
		preview := func(args map[string]any) harness.Answer { return call(t, h, "preview_dataframe", args) }

		a := preview(map[string]any{"name": "df", "filter": "price >= 2 and city is not None", "sort_by": "price", "columns": "price,city"})
		want(t, a, map[string]any{"success": true, "rows": "[[2 Bonn] [3.5 Bonn]]", "row_count": 2, "truncated": false, "engine": "pandas"})
		if !strings.Contains(a.Text, "2 rows, 2 columns (pandas)\n--- rows [") || !strings.Contains(a.Text, "]\nprice (float64) | city (") || !strings.Contains(a.Text, "\n2 | Bonn\n") {
			t.Error(a.Text)
		}
		want(t, preview(map[string]any{"name": "loud"}), map[string]any{"rows": "[[1 <__main__.Loud>] [2 <__main__.Loud>]]"})
		wantError(t, preview(map[string]any{"name": "dff"}), "not_found")
		wantError(t, preview(map[string]any{"name": "loud", "sort_by": "o"}), "bad_request")
		wantError(t, call(t, h, "query_dataframes", map[string]any{"sql": "FROM df"}), "not_supported")
		want(t, quick(t, h, "len(In) - before, [n for n in dir() if 'relay' in n or 'preview' in n]"), map[string]any{"result": "(1, [])"})
	})
}

func wantError(t *testing.T, a harness.Answer, code string) {
	t.Helper()
	if a.Error() != code || strings.Contains(a.Text, "__str__ ran") {
		t.Errorf("%s, want %s: %s", a.Error(), code, a.Text)
	}
}

func TestQueryDataframes(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	s, ok := stacks.Data(t)
	if !ok {
		return
	}
	h := allTools(t, s, "8s")
	_, frames := follow(t, h, quick(t, h, someFrames).String("execution_id"), 0)
	want(t, frames, map[string]any{"status": "succeeded"})
	query := func(sql string) harness.Answer {
		return call(t, h, "query_dataframes", map[string]any{"sql": sql, "timeout_seconds": 300})
	}
	want(t, query("SELECT city, sum(price) FROM df GROUP BY city ORDER BY city"), map[string]any{
		"success": true, "rows": "[[Bonn 5.5] [Ulm 1] [<nil> <nil>]]", "row_count": 3, "engine": "duckdb", "truncated": false,
	})
	a := query("FROM loud")
	want(t, a, map[string]any{"rows": "[[1] [2]]", "row_count": 2})
	if !strings.Contains(a.Text, "Note: left out of loud, because") || strings.Contains(a.Text, "__str__ ran") {
		t.Error(a.Text)
	}
	for sql, code := range map[string]string{
		"FROM nope": "not_found", "FROM Loud": "not_supported", "FROM read_csv('/etc/passwd')": "bad_request", "SELECT 1; SELECT 2": "bad_request",
	} {
		wantError(t, query(sql), code)
	}
	endless := "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t"
	wantError(t, query(endless), "timed_out") // the call's own time is shorter
	want(t, quick(t, h, "1"), map[string]any{"result": "1"})
}

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
