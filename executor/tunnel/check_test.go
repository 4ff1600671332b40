package tunnel

import (
	"os"
	"strings"
	"testing"

	"colabrelay/executor/tunnel/ngroktest"
)

func TestCheckTellsWhatItFoundOrWhatToDo(t *testing.T) {
	for name, c := range map[string]struct {
		config func(t *testing.T) Config
		found  string // else says
		says   string
	}{
		"none":  {config: func(*testing.T) Config { return Config{Kind: KindNone} }, found: "none"},
		"ngrok": {config: func(t *testing.T) Config { return edgeConfig(ngroktest.Start(t)) }, found: "can be reached at 127.0.0.1:"},
		"ngrok out of reach": {
			config: func(t *testing.T) Config {
				return Config{Kind: KindNgrok, Token: testToken, Server: freeAddress(t)}
			},
			says: "ngrok can't be reached",
		},
		"ssh": {config: func(t *testing.T) Config { return startSSHD(t).Config() }, found: "and forwards a port"},
		"ssh out of reach": {
			config: func(t *testing.T) Config {
				return Config{Kind: KindSSH, SSH: SSH{Server: "me@" + freeAddress(t), Home: t.TempDir()}}
			},
			says: "can't be reached",
		},
		"ssh, unknown server": {
			config: func(t *testing.T) Config {
				s := startSSHD(t)
				s.write(s.knownHosts(), "")
				return s.Config()
			},
			says: "--ssh-accept-new",
		},
		"ssh, no forwards": {config: func(t *testing.T) Config { return startSSHD(t, "AllowTcpForwarding no").Config() }, says: "AllowTcpForwarding"},
		"cloudflared": {
			config: func(t *testing.T) Config { installStandIn(t); return Config{Kind: KindCloudflared} },
			found:  "cloudflared version 2026.9.0 (built 2026-09-01-1200 UTC) at /",
		},
		"cloudflared missing": {
			config: func(t *testing.T) Config { t.Setenv("PATH", t.TempDir()); return Config{Kind: KindCloudflared} },
			says:   "not on PATH",
		},
		"cloudflared of another machine": {
			config: func(t *testing.T) Config {
				f := installStandIn(t)
				if err := os.Remove(f.file(cloudflaredProgram)); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(f.file(cloudflaredProgram), []byte("\x7fELF"), 0o700); err != nil {
					t.Fatal(err)
				}
				return Config{Kind: KindCloudflared}
			},
			says: "install it again",
		},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := Check(t.Context(), c.config(t))
			if c.says == "" {
				if err != nil || !strings.Contains(found, c.found) {
					t.Errorf("it found %q, %v", found, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("it says %v", err)
			}
		})
	}
}
