package colabapitest

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
)

//go:embed server.py
var serverScript string

// startLimit bounds the start of the Jupyter server on a busy computer.
const startLimit = 60 * time.Second

// jupyterServer is a real Jupyter server, whose files are this computer's, as Colab's are the
// VM's. All imitations of one process share it, because it takes seconds to start.
type jupyterServer struct {
	host, token string
	dir         string
	cmd         *exec.Cmd
	alive       io.Closer // its end ends the server, also when this process is killed
}

var shared struct {
	mu     sync.Mutex
	users  int
	server *jupyterServer
}

// KeepServer keeps the Jupyter server until the end of the test, for subtests.
func KeepServer(t testing.TB) {
	_, release := acquire(t)
	t.Cleanup(release)
}

// jupyter returns the server, started if needed.
func (g *Google) jupyter() *jupyterServer {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.release == nil {
		_, g.release = acquire(g.t)
	}
	return shared.server
}

func acquire(t testing.TB) (s *jupyterServer, release func()) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server == nil {
		var err error
		if shared.server, err = startJupyter(stacks.Server(t)); err != nil {
			t.Fatal(err)
		}
	}
	shared.users++
	return shared.server, func() {
		shared.mu.Lock()
		defer shared.mu.Unlock()
		if shared.users--; shared.users == 0 {
			shared.server.close()
			shared.server = nil
		}
	}
}

func startJupyter(python string) (*jupyterServer, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &jupyterServer{host: l.Addr().String(), token: rand.Text()}
	l.Close()
	if s.dir, err = os.MkdirTemp("", "colabapitest-"); err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(s.host)
	s.cmd = exec.Command(python, "-c", serverScript, "--no-browser", "--allow-root",
		"--ServerApp.ip=127.0.0.1", "--ServerApp.port="+port, "--ServerApp.port_retries=0", "--ServerApp.root_dir=/",
		"--ServerApp.log_level=ERROR", "--ServerApp.jpserver_extensions={}", "--ContentsManager.allow_hidden=False")
	s.cmd.Env = append(os.Environ(), "JUPYTER_TOKEN="+s.token, "HOME="+s.dir, "TMPDIR="+s.dir, "JUPYTER_RUNTIME_DIR="+s.dir, "IPYTHONDIR="+s.dir, "JUPYTER_PLATFORM_DIRS=1", "PYDEVD_DISABLE_FILE_VALIDATION=1")
	said := &strings.Builder{}
	s.cmd.Stdout, s.cmd.Stderr = said, said
	s.alive, err = s.cmd.StdinPipe()
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	if err := harness.Poll(ctx, func() (bool, error) { _, err := s.call(http.MethodGet, "/api/kernels"); return err == nil, nil }); err != nil {
		s.close()
		return nil, fmt.Errorf("the Jupyter server does not start: %v: %s", err, said)
	}
	return s, nil
}

// close ends the server, its kernels, and all programs that they started.
func (s *jupyterServer) close() {
	s.alive.Close()
	_ = s.cmd.Wait()
	endPrograms([]string{s.dir})
	os.RemoveAll(s.dir)
}

func (s *jupyterServer) call(method, path string) (*http.Response, error) {
	req, err := http.NewRequest(method, "http://"+s.host+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "token "+s.token)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 20 * time.Second}
	res, err := client.Do(req)
	if err == nil && res.StatusCode/100 != 2 {
		res.Body.Close()
		err = fmt.Errorf("%s", res.Status)
	}
	return res, err
}

func (s *jupyterServer) kernels() (ids []string) {
	res, err := s.call(http.MethodGet, "/api/kernels")
	if err != nil {
		return nil
	}
	defer res.Body.Close()
	var all []struct{ ID string }
	_ = json.NewDecoder(res.Body).Decode(&all)
	for _, k := range all {
		ids = append(ids, k.ID)
	}
	return ids
}

func (s *jupyterServer) endKernel(id string) {
	if slices.Contains(s.kernels(), id) {
		if res, err := s.call(http.MethodDelete, "/api/kernels/"+id); err == nil {
			res.Body.Close()
		}
	}
}

// endPrograms ends the programs that name a temporary folder as the place of their files.
func endPrograms(folders []string) {
	below := filepath.Clean(os.TempDir()) + "/"
	folders = slices.DeleteFunc(slices.Clone(folders), func(dir string) bool { return !strings.HasPrefix(dir, below) })
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = harness.Poll(ctx, func() (bool, error) {
		left := 0
		lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, line := range lines {
			text, err := os.ReadFile(line)
			if err != nil || !slices.ContainsFunc(folders, func(dir string) bool { return strings.Contains(string(text), dir+"/") }) {
				continue
			}
			if pid, err := strconv.Atoi(strings.Split(line, "/")[2]); err == nil {
				_ = syscall.Kill(pid, syscall.SIGKILL)
				left++
			}
		}
		return left == 0, nil
	})
}
