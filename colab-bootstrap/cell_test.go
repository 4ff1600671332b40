package bootstrap

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

// standIn is the executor of most tests: it prints a line, and writes its environment
// and arguments to the file seen.
const standIn = `#!/bin/sh
echo "stand-in executor runs"
if [ "$1" = --python ]; then echo "$2" > python; shift 2; fi
printf '%s\n' "$EXECUTOR_SECRET" "$NGROK_AUTHTOKEN" "$NGROK_DOMAIN" "$#" "$@" > seen
`

var asset = "executor-linux-" + runtime.GOARCH

func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// serve serves text as version v1's executor and counts its downloads.
func serve(t *testing.T, text string) (r Release, downloads *int) {
	t.Helper()
	downloads = new(int)
	mux := http.NewServeMux()
	mux.HandleFunc("/r/v1/"+asset, func(w http.ResponseWriter, _ *http.Request) {
		*downloads++
		_, _ = w.Write([]byte(text))
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return Release{Releases: server.URL + "/r", Version: "v1", SHA256AMD64: digestOf(standIn), SHA256ARM64: digestOf(standIn)}, downloads
}

func (v *vm) seen() string {
	v.t.Helper()
	text, err := os.ReadFile(filepath.Join(v.dir, "seen"))
	if err != nil {
		v.t.Fatal(err)
	}
	return string(text)
}

func TestTheCellStartsTheReleaseWithSecretsFromTheEnvironment(t *testing.T) {
	r, downloads := serve(t, standIn)
	v := newVM(t, r)
	v.env["EXECUTOR_SECRET"], v.env["NGROK_AUTHTOKEN"], v.env["NGROK_DOMAIN"] = testSecret, testToken, testDomain
	v.fill("FLAGS", `"--allow-path '/a b' --python=$HOME/{x}"`)
	if out := v.run(); out != "stand-in executor runs" {
		t.Errorf("the cell showed:\n%s", out)
	}
	want := strings.Join([]string{
		testSecret, testToken, testDomain, "4", "--domain=" + testDomain, "--allow-path", "/a b", "--python=$HOME/{x}", "",
	}, "\n")
	if got := v.seen(); got != want {
		t.Errorf("the program saw\n%s\nwant\n%s", got, want)
	}
	if *downloads != 1 {
		t.Errorf("the release was downloaded %d times", *downloads)
	}
}

// refused runs the cell, which must print one line and leave no file behind.
func (v *vm) refused(says ...string) {
	v.t.Helper()
	v.env["EXECUTOR_SECRET"], v.env["NGROK_AUTHTOKEN"], v.env["NGROK_DOMAIN"] = testSecret, testToken, testDomain
	out := v.run()
	for _, part := range says {
		if strings.Contains(out, "\n") || !strings.HasPrefix(out, "No executor: ") || !strings.Contains(out, part) {
			v.t.Errorf("want one line with %q, got:\n%s", part, out)
		}
	}
	for _, name := range []string{"executor", "executor.download"} {
		if _, err := os.Stat(filepath.Join(v.dir, name)); err == nil {
			v.t.Errorf("%s is left behind", name)
		}
	}
}

func TestTheCellRefusesAnotherFile(t *testing.T) {
	other, _ := serve(t, "#!/bin/sh\necho something else\n")
	newVM(t, other).refused(other.Releases+"/v1/"+asset+": ", "not the file that this cell expects (its SHA-256 differs)", "and "+asset+" of v1 was not uploaded here or to Drive.")
}

func TestCellRefusesValuesThatPythonCouldReadAsCode(t *testing.T) {
	good := Release{Releases: "https://example.com/r", Version: "v1", SHA256AMD64: digestOf("a"), SHA256ARM64: digestOf("b")}
	cell, err := Cell(good)
	if err != nil {
		t.Fatal(err)
	}
	for _, blank := range []string{"@RELEASES@", "@VERSION@", "@PAGE@", "@SHA256_AMD64@", "@SHA256_ARM64@"} {
		if strings.Contains(cell, blank) || !strings.Contains(template, blank) {
			t.Errorf("%s is not filled in", blank)
		}
	}
	for name, spoil := range map[string]func(*Release){
		"quote in URL":     func(r *Release) { r.Releases = `https://example.com/"+x+"` },
		"quote in version": func(r *Release) { r.Version = `v1"` },
		"no digest":        func(r *Release) { r.SHA256ARM64 = "" },
	} {
		t.Run(name, func(t *testing.T) {
			bad := good
			spoil(&bad)
			if _, err := Cell(bad); err == nil {
				t.Error("it was accepted")
			}
		})
	}
}

// What is read of a SHA256SUMS file is a digest of its own line, and only digests get into a cell.
func FuzzReadSums(f *testing.F) {
	a, b := strings.Repeat("a", 64), strings.Repeat("b", 64)
	f.Add([]byte(a + "  executor-linux-amd64\n" + b + " *executor-linux-arm64\n" + b + "  colab-relay-linux-amd64\n"))
	f.Add([]byte(a + "  ../executor-linux-amd64\n" + a + "  executor-linux-amd64 \n"))
	f.Add([]byte("\"; import os #  executor-linux-amd64\r\n" + strings.ToUpper(a) + "  executor-linux-arm64"))
	f.Add([]byte("executor-linux-amd64\n  executor-linux-arm64\n"))
	f.Add([]byte(strings.ToUpper(a) + "  executor-linux-amd64\n" + b + "  executor-linux-arm64\n"))
	f.Fuzz(func(t *testing.T, sums []byte) {
		r := Release{Releases: "https://example.com/r", Version: "v1"}
		if r.ReadSums(bytes.NewReader(sums)) != nil {
			return
		}
		for name, digest := range map[string]string{"executor-linux-amd64": r.SHA256AMD64, "executor-linux-arm64": r.SHA256ARM64} {
			own := func(line string) bool {
				rest, found := strings.CutPrefix(strings.TrimSuffix(line, "\r"), digest+" ")
				return found && strings.TrimLeft(rest, " *") == name
			}
			if digest != "" && !slices.ContainsFunc(strings.Split(string(sums), "\n"), own) {
				t.Errorf("%q is not the digest of %s", digest, name)
			}
		}
		cell, err := Cell(r)
		isDigest := func(text string) bool { return len(text) == 64 && strings.Trim(text, "0123456789abcdef") == "" }
		if good := isDigest(r.SHA256AMD64) && isDigest(r.SHA256ARM64); good != (err == nil) || good != (cell != "") {
			t.Errorf("the digests %q and %q make a cell: %v", r.SHA256AMD64, r.SHA256ARM64, err)
		}
	})
}

// allSecrets are the secrets of a notebook in which everything is set up.
func allSecrets() map[string]pageSecret {
	return map[string]pageSecret{
		"EXECUTOR_SECRET": granted(testSecret), "NGROK_AUTHTOKEN": granted(" " + testToken + "\n"), "NGROK_DOMAIN": granted(testDomain),
	}
}

func TestSecretsFromThePageReachTheExecutorAndNotTheNotebook(t *testing.T) {
	tier.Long(t)
	want := strings.Join([]string{testSecret, testToken, testDomain, "1", "--domain=" + testDomain, ""}, "\n")
	for name, place := range map[string]func(*vm, map[string]pageSecret){"Colab": (*vm).onColab, "Kaggle": (*vm).onKaggle} {
		t.Run(name, func(t *testing.T) {
			r, _ := serve(t, standIn)
			v := newVM(t, r)
			place(v, allSecrets())
			v.cell += "\nprint('left in the environment:', [name for name in os.environ if name in given])\n"
			out, p := v.runPage()
			if out != "stand-in executor runs\nleft in the environment: []" || v.seen() != want {
				t.Errorf("the cell showed\n%s\nand the program saw\n%s", out, v.seen())
			}
			if name == "Kaggle" && len(p.asked) != 0 {
				t.Errorf("on Kaggle, Colab's page was asked for %q", p.asked)
			}
		})
	}
}

func TestRelayAndCellGiveASecretTheSameName(t *testing.T) {
	runtimes := []string{"", "default", "Default", "lab", "LAB", "my-lab", "my.lab", "my_lab", "A1", "7", "a--b", strings.Repeat("x", 64)}
	_, rest, found := strings.Cut(template, "\ndef secret_name(")
	function, _, ended := strings.Cut(rest, "\n\n\n")
	if !found || !ended {
		t.Fatal("the cell has no secret_name")
	}
	given, err := json.Marshal(runtimes)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), stacks.Old(t).Python, "-c", "import json, re, sys\ndef secret_name("+function+
		"\nprint(json.dumps([secret_name('EXECUTOR_SECRET', name) for name in json.loads(sys.argv[1])]))", string(given))
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var cells, ours []string
	if err := json.Unmarshal(out, &cells); err != nil {
		t.Fatal(err)
	}
	for _, name := range runtimes {
		ours = append(ours, SecretName("EXECUTOR_SECRET", name))
	}
	if !slices.Equal(cells, ours) {
		t.Errorf("the cell says %q, the relay %q", cells, ours)
	}
	if want := []string{"EXECUTOR_SECRET", "EXECUTOR_SECRET", "EXECUTOR_SECRET_DEFAULT", "EXECUTOR_SECRET_LAB"}; !slices.Equal(ours[:4], want) {
		t.Errorf("the names are %q", ours)
	}
}
