package colabapitest

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"colabrelay/relay/vm/vmtest"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/freeport"
	"colabrelay/shared/stacks"
)

//go:embed server.py
var serverScript string

// startLimit bounds the start of the Jupyter server on a busy computer.
const startLimit = 2 * time.Minute

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

// KeepServer keeps the Jupyter server, once a test has started it, until release is called.
// Tests of a whole package then share it.
func KeepServer() (release func()) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	shared.users++
	return leave
}

func leave() {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.users--; shared.users == 0 && shared.server != nil {
		shared.server.close()
		shared.server = nil
	}
}

// jupyter returns the server, started if needed.
func (g *Google) jupyter() *jupyterServer {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.server == nil {
		g.server = acquire(g.t)
	}
	return g.server
}

// acquire returns the shared server, for a user who calls leave at the end.
func acquire(t testing.TB) *jupyterServer {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server == nil {
		s, err := startJupyter(stacks.Server(t))
		if err != nil {
			t.Fatal(err)
		}
		shared.server = s
	}
	shared.users++
	return shared.server
}

func startJupyter(python string) (*jupyterServer, error) {
	host, err := freeport.Address()
	if err != nil {
		return nil, err
	}
	s := &jupyterServer{host: host, token: rand.Text()}
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
	if err := harness.Poll(ctx, func() (bool, error) { _, err := s.kernels(); return err == nil, nil }); err != nil {
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

// call sends a request and decodes the answer into out unless that is nil.
func (s *jupyterServer) call(method, path string, out any) error {
	req, err := http.NewRequest(method, "http://"+s.host+path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "token "+s.token)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 20 * time.Second}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode/100 != 2 {
		return errors.New(res.Status)
	}
	if out == nil {
		return nil
	}
	return json.NewDecoder(res.Body).Decode(out)
}

func (s *jupyterServer) kernels() (ids []string, err error) {
	var all []struct{ ID string }
	err = s.call(http.MethodGet, "/api/kernels", &all)
	for _, k := range all {
		ids = append(ids, k.ID)
	}
	return ids, err
}

// endKernel ends a kernel, if it is still there.
func (s *jupyterServer) endKernel(id string) { _ = s.call(http.MethodDelete, "/api/kernels/"+id, nil) }

// endPrograms ends the programs that name a temporary folder as the place of their files.
func endPrograms(folders []string) {
	below := filepath.Clean(os.TempDir()) + "/"
	vmtest.KillIn(slices.DeleteFunc(slices.Clone(folders), func(dir string) bool { return !strings.HasPrefix(dir, below) })...)
}
