package main

import (
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/freeport"
	"colabrelay/shared/stacks"
)

// bridgeToken protects the old-style bridge as far as such bridges were.
const bridgeToken = "token"

// flask starts the VM's side of the old-style bridge and returns its address.
func (b *bench) flask(ctx context.Context) (url string, err error) {
	address, err := freeport.Address()
	if err != nil {
		return "", err
	}
	_, port, _ := net.SplitHostPort(address)
	cmd := exec.Command(b.bridge, bridgeScript("flask_app.py"), port)
	cmd.Dir = b.memory
	cmd.Env = append(os.Environ(), "BRIDGE_TOKEN="+bridgeToken)
	if err := cmd.Start(); err != nil {
		return "", err
	}
	b.atEnd(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return "http://" + address, awaitHTTP(ctx, "http://"+address)
}

func bridgeScript(name string) string {
	return filepath.Join(stacks.Root(), "shared", "e2e", "bench", "bridge", name)
}

// awaitHTTP returns when something answers at url.
func awaitHTTP(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return harness.Poll(ctx, func() (bool, error) {
		res, err := http.Get(url)
		if err != nil {
			return false, nil
		}
		return true, res.Body.Close()
	})
}

// bridgeHost starts an MCP host with the laptop's side of the old-style bridge, whose other
// side is at url.
func (b *bench) bridgeHost(ctx context.Context, url string) (*harness.Host, error) {
	return b.startHost(ctx, b.bridgeConfig(url))
}

func (b *bench) bridgeConfig(url string) harness.HostConfig {
	return harness.HostConfig{
		Binary: b.bridge, Args: []string{bridgeScript("mcp_server.py")}, Dir: b.memory,
		Env: []string{"BRIDGE_URL=" + url, "BRIDGE_TOKEN=" + bridgeToken},
	}
}
