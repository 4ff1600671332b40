package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"colabrelay/executor/tunnel/ngroktest"
	"colabrelay/relay/vm"
	"colabrelay/relay/vm/colabapi/colabapitest"
	"colabrelay/relay/vm/colabcli/colabclitest"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/tier"
)

// vmLaptop is a computer whose relay starts VMs with one backend.
type vmLaptop struct {
	t       *testing.T
	dir     string
	env     []string
	running func() []string // the VMs that Google has
	// killAt calls kill, which kills the relay that starts a VM, or kills it itself, at the nth
	// request or call of the backend.
	killAt func(n int64, kill func())
}

func newVMLaptop(t *testing.T) *vmLaptop {
	l := &vmLaptop{t: t, dir: t.TempDir()}
	l.env = []string{"HOME=" + l.dir, "XDG_CONFIG_HOME=" + l.dir + "/config", "XDG_CACHE_HOME=" + l.dir + "/cache", "XDG_DATA_HOME=" + l.dir + "/data"}
	return l
}

func (l *vmLaptop) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(within(l.t), binaries.Relay, args...)
	cmd.Dir, cmd.Env = l.dir, l.env
	return cmd
}

func (l *vmLaptop) up() *exec.Cmd {
	return l.command("vm", "up", "--gpu", "T4", "--executor", binaries.Executor)
}

// ok runs a command that must succeed and returns what it prints.
func (l *vmLaptop) ok(cmd *exec.Cmd) string {
	l.t.Helper()
	var errs harness.Output
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		l.t.Fatalf("%q: %v\n%s%s", cmd.Args[1:], err, out, errs.String())
	}
	return string(out)
}

// ours returns the VMs that the relay lists as its own and as existing.
func (l *vmLaptop) ours() map[string]vm.VM {
	l.t.Helper()
	var listed vm.Listing
	must(l.t, json.Unmarshal([]byte(l.ok(l.command("vm", "list", "--json"))), &listed))
	ours := map[string]vm.VM{}
	for _, v := range listed.VMs {
		if v.Ours && v.State != vm.StateNotFound && v.State != vm.StateEnded {
			ours[v.ID] = v
		}
	}
	return ours
}

// onAPI returns a laptop that is logged in to an imitation of Google's API.
func onAPI(t *testing.T) *vmLaptop {
	t.Helper()
	l, g := newVMLaptop(t), colabapitest.Start(t)
	l.env = append(append(l.env, "PATH="+t.TempDir()), g.Env()...) // no program opens a browser
	l.running = g.Running
	l.killAt = func(n int64, kill func()) {
		var requests atomic.Int64
		g.Intercept(func(http.ResponseWriter, *http.Request) bool {
			if requests.Add(1) == n {
				kill()
			}
			return false
		})
	}
	var errs harness.Output
	login := l.command("vm", "login", "--backend", "api", "--client", g.ClientFile(t), "--yes")
	login.Stderr = &errs
	must(t, login.Start())
	link := regexp.MustCompile(`http://\S+`)
	must(t, harness.Poll(within(t), func() (bool, error) { return link.MatchString(errs.String()), nil }))
	must(t, g.Approve(t.Context(), link.FindString(errs.String())))
	if err := login.Wait(); err != nil {
		t.Fatalf("login: %v\n%s", err, errs.String())
	}
	return l
}

// onCLI returns a laptop that is logged in with the stand-in for Google's command line.
func onCLI(t *testing.T) *vmLaptop {
	t.Helper()
	l, program, edge := newVMLaptop(t), colabclitest.Install(t), ngroktest.Start(t)
	bin := t.TempDir()
	counter, kill := filepath.Join(bin, "calls"), filepath.Join(bin, "kill")
	script := fmt.Sprintf("#!/bin/sh\nn=$(($(cat %[1]s) + 1))\necho $n >%[1]s\nif [ $n -eq $(cat %[2]s) ]; then kill -9 $PPID; fi\n"+
		"COLAB_RELAY_NGROK_SERVER=%[3]s COLAB_RELAY_NGROK_CA=%[4]s exec %[5]s \"$@\"\n", counter, kill, edge.Addr, edge.CAFile, program.Path)
	must(t, os.WriteFile(filepath.Join(bin, "colab"), []byte(script), 0o700))
	arm := func(n int64) {
		must(t, os.WriteFile(counter, []byte("0"), 0o600))
		must(t, os.WriteFile(kill, fmt.Append(nil, n), 0o600))
	}
	arm(0)
	l.env = append(l.env, "PATH="+bin+":/usr/bin:/bin", "NGROK_AUTHTOKEN=a-token-of-the-test")
	l.running = program.Endpoints
	l.killAt = func(n int64, _ func()) { arm(n) }
	l.ok(l.command("vm", "login", "--yes"))
	return l
}

// The real relay is killed while it starts a VM, at a request to Google's API or a call of
// Google's program: that call still has its effect. The next relay lists all that runs,
// completes the start, and stops it. Without LONG a few points are tried.
func TestAKilledRelayLeavesNoVMUnlisted(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	for name, c := range map[string]struct {
		open   func(*testing.T) *vmLaptop
		points int64 // more than a start has
		sample int
	}{
		"API": {onAPI, 120, 1}, "CLI": {onCLI, 16, 1},
	} {
		points := rand.Perm(int(c.points))
		if os.Getenv("LONG") == "" {
			points = points[:c.sample]
		}
		for _, n := range points {
			t.Run(fmt.Sprintf("%s at %d", name, n+1), func(t *testing.T) {
				t.Parallel()
				l := c.open(t)
				start := l.up()
				started := make(chan struct{})
				l.killAt(int64(n+1), func() { <-started; _ = start.Process.Kill() })
				must(t, start.Start())
				close(started)
				_ = start.Wait() // killed, or complete if it has fewer points
				l.killAt(0, nil)
				l.mustListAll()
				l.ok(l.up())
				if out := l.ok(l.command("run", "-c", "print(6 * 7)")); out != "42\n" {
					t.Errorf("run printed %q", out)
				}
				if n := len(l.running()); n != 1 {
					t.Errorf("%d VMs run", n)
				}
				l.ok(l.command("vm", "down", "vm"))
				if left := l.running(); len(left) > 0 || len(l.ours()) > 0 {
					t.Errorf("after down: %q run, %v are listed", left, l.ours())
				}
			})
		}
	}
}

// mustListAll checks that the relay lists every VM that Google has.
func (l *vmLaptop) mustListAll() {
	l.t.Helper()
	if running, ours := l.running(), l.ours(); len(ours) < len(running) {
		l.t.Errorf("%q run, listed are %v", running, ours)
	} else if strings.Join(running, "") != "" && len(ours) != 1 {
		l.t.Errorf("one VM was asked for, listed are %v", ours)
	}
}

// An agent's host has the release's executor and the tools only.
func TestAnAgentStartsUsesAndStopsAVM(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	l := onAPI(t)
	env := append(l.env, "RELAY_TOOLSETS=core,provision", "RELAY_HOLD=5s", "COLAB_RELAY_RELEASE_URL="+serveRelease(t))
	h, err := harness.StartHost(within(t), harness.HostConfig{Binary: binaries.Relay, Dir: l.dir, Env: env})
	must(t, err)
	defer h.Close()
	call := func(tool string, args map[string]any) harness.Answer {
		t.Helper()
		a, err := h.Call(within(t), tool, args)
		must(t, err)
		if a.Error() != "" {
			t.Fatalf("%s: %s\n%s", tool, a.Error(), h.Stderr)
		}
		return a
	}
	start := map[string]any{"accelerators": "T4", "name": "lab"}
	a := call("start_colab_vm", start)
	for a.Fields["starting"] == true {
		a = call("start_colab_vm", start)
	}
	if out := call("run_code_quick", map[string]any{"runtime": "lab", "code": "print(6 * 7)"}).String("stdout"); out != "42\n" {
		t.Errorf("printed %q", out)
	}
	call("stop_colab_vm", map[string]any{"id": "lab"})
	if left := l.running(); len(left) > 0 {
		t.Errorf("%q run", left)
	}
}
