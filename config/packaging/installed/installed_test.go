//go:build release

// Package installed tests a release as people get it: it installs every file with the tools
// that it is for, in an empty home, and runs it. make verify builds the release and runs it.
//
// It must not use the network but for the release's address, PyPI and Go's proxy, nor
// change anything outside temporary folders. Start reading at machine.
package installed

import (
	"bytes"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// What make verify passes on.
var (
	dist     = os.Getenv("DIST")     // the files of the release
	tools    = os.Getenv("TOOLS")    // an environment with uv, pipx, mcpb, claude and gemini
	version  = os.Getenv("VERSION")  // of the release
	releases = os.Getenv("RELEASES") // its address, on loopback
	number   = strings.TrimPrefix(version, "v")

	pack         = os.Getenv("PACKAGE") // name of the relay's packages
	executorPack = os.Getenv("EXECUTOR_PACKAGE")
)

// TestMain serves the release at the address that is built into it.
func TestMain(m *testing.M) {
	address, err := url.Parse(releases)
	if err != nil || dist == "" || tools == "" || version == "" || pack == "" || executorPack == "" {
		panic("run make verify: it sets DIST, TOOLS, VERSION, RELEASES, PACKAGE and EXECUTOR_PACKAGE")
	}
	listener, err := net.Listen("tcp", address.Host)
	if err != nil {
		panic(err)
	}
	release := http.StripPrefix(address.Path+"/"+version+"/", http.FileServer(http.Dir(dist)))
	go func() {
		_ = http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked.Lock()
			asked.paths = append(asked.paths, path.Base(r.URL.Path))
			asked.Unlock()
			release.ServeHTTP(w, r)
		}))
	}()
	os.Exit(m.Run())
}

// asked holds the names of the release's files that were requested.
var asked struct {
	sync.Mutex
	paths []string
}

// machine is an empty home on which a person installs something.
type machine struct {
	t    *testing.T
	home string
	path string
	env  []string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	home := t.TempDir()
	path := strings.Join([]string{home + "/.local/bin", tools + "/bin", tools + "/node_modules/.bin", os.Getenv("PATH")}, ":")
	return &machine{t, home, path, []string{
		"HOME=" + home, "PATH=" + path, "TMPDIR=" + t.TempDir(), "LANG=C.UTF-8",
		"PIP_DISABLE_PIP_VERSION_CHECK=1", "PIP_NO_CACHE_DIR=1", "NPM_CONFIG_UPDATE_NOTIFIER=false", "DISABLE_AUTOUPDATER=1",
	}}
}

// run runs a program in the home and returns its standard output, without newlines at the
// end.
func (m *machine) run(name string, args ...string) string {
	m.t.Helper()
	out, other, err := m.start("", name, args)
	if err != nil {
		m.t.Fatalf("%s %q: %v\n%s%s", name, args, err, out, other)
	}
	return strings.TrimSpace(out)
}

// try returns all that a program printed, and whether it ended well.
func (m *machine) try(stdin, name string, args ...string) (string, error) {
	m.t.Helper()
	out, other, err := m.start(stdin, name, args)
	return out + other, err
}

func (m *machine) start(stdin, name string, args []string) (string, string, error) {
	m.t.Helper()
	cmd := exec.CommandContext(m.t.Context(), m.find(name), args...)
	var out, other strings.Builder
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = m.home, m.env, strings.NewReader(stdin), &out, &other
	err := cmd.Run()
	return out.String(), other.String(), err
}

// find returns the path of a program that the machine has on PATH.
func (m *machine) find(name string) string {
	if strings.Contains(name, "/") {
		return name
	}
	for folder := range strings.SplitSeq(m.path, ":") {
		if file := filepath.Join(folder, name); exists(file) {
			return file
		}
	}
	m.t.Fatalf("there is no %s", name)
	return ""
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// file returns the path of the only file of the release with a name of a pattern.
func file(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dist, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("the release has %q for %q, want one file: %v", found, pattern, err)
	}
	return found[0]
}

// at returns the address of such a file.
func at(t *testing.T, pattern string) string {
	return releases + "/" + version + "/" + filepath.Base(file(t, pattern))
}

// isRelay fails unless a command is the relay of this release, which answers an MCP host.
func (m *machine) isRelay(name string, args ...string) {
	m.t.Helper()
	if got := m.run(name, append(args, "version")...); !strings.Contains(got, version) {
		m.t.Errorf("%s is version %q, want %q", name, got, version)
	}
	m.answersHost(name, append(args, "serve")...)
}

func (m *machine) answersHost(name string, args ...string) {
	m.t.Helper()
	const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}` + "\n"
	out, err := m.try(hello, name, args...)
	if err != nil || !strings.Contains(out, `"serverInfo"`) {
		m.t.Errorf("%s %q did not answer a host: %v\n%s", name, args, err, out)
	}
}

// Installing must leave nothing but what the tools keep in their own folders.
func (m *machine) holdsOnly(allowed ...string) {
	m.t.Helper()
	entries, err := os.ReadDir(m.home)
	must(m.t, err)
	for _, e := range entries {
		if !strings.Contains(" "+strings.Join(allowed, " ")+" ", " "+e.Name()+" ") {
			m.t.Errorf("the home holds %s", e.Name())
		}
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	must(t, err)
	return b
}

func sameFile(t *testing.T, name, other string) {
	t.Helper()
	if !bytes.Equal(read(t, name), read(t, other)) {
		t.Errorf("%s and %s differ", name, other)
	}
}

func mustBeProgram(t *testing.T, name string) {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil || info.Mode().Perm()&0o111 != fs.FileMode(0o111) {
		t.Errorf("%s can't be run: %v, %v", name, info, err)
	}
}

// must ends the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
