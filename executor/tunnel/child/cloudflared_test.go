package child

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"colabrelay/executor/tunnel/tunneltest"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

var (
	start = tunneltest.Start
	visit = tunneltest.Visit
	hello = tunneltest.Hello
)

func TestATunnelThatCloudflareForgotIsReplaced(t *testing.T) {
	tier.Long(t)
	f := installStandIn(t)
	f.behave("forgotten")
	tun := cloudflaredNow(nil)
	tun.connectTimeout, tun.retry.GiveUp = 5*time.Second, time.Hour
	r := start(t, tun, hello)
	old := r.URL()
	f.behave("")
	within.Until(t, "another program runs", func() bool { return len(f.started()) > 1 })
	url := old
	within.Until(t, "its URL answers", func() bool {
		url = r.Latest(url)
		_, body, err := visit(url)
		return url != old && err == nil && body == "hello"
	})
}

func TestCloudflaredGetsNoSecret(t *testing.T) {
	f := installStandIn(t)
	environ := map[string]string{
		"EXECUTOR_SECRET": "secret one", "NGROK_AUTHTOKEN": "secret two", "TUNNEL_TOKEN": "secret three",
		"HOME": "/home/of", "TUNNEL_TRANSPORT_PROTOCOL": "http2",
	}
	for name, value := range environ {
		t.Setenv(name, value)
	}
	start(t, cloudflaredNow(environ), hello).URL()
	raw, err := os.ReadFile(f.file("environ"))
	must(t, err)
	if got := strings.TrimSpace(string(raw)); got != "HOME=/home/of\nTUNNEL_TRANSPORT_PROTOCOL=http2" {
		t.Errorf("it gets\n%s", got)
	}
}

func TestCloudflaredEndsWithTheTunnel(t *testing.T) {
	tier.Long(t)
	for _, behaviour := range []string{"", "stubborn"} {
		t.Run("behaves "+behaviour, func(t *testing.T) {
			f := installStandIn(t)
			f.behave(behaviour)
			r := start(t, cloudflaredNow(nil), hello)
			r.URL()
			_ = r.Stop()
			if err := syscall.Kill(f.started()[0], 0); !errors.Is(err, syscall.ESRCH) {
				t.Errorf("the program still runs: %v", err)
			}
		})
	}
}

func FuzzLinesOfPrograms(f *testing.F) {
	f.Add("2023-04-18T14:06:49Z INF |  https://a-b.trycloudflare.com  |\nINF Registered tunnel connection")
	f.Add("2023-04-18T14:06:49Z INF |  https://a.trycloudflare.com.evil.example  |\nINF Registered tunnel connection")
	f.Add("debug1: remote forward success for: listen 0\nAllocated port 123 for remote forward\nhttps://a.lhr.life")
	f.Fuzz(func(t *testing.T, output string) {
		lines := make(chan string)
		go readLines(strings.NewReader(output), lines)
		quick, anyPort, printed := &quickTunnel{}, &forwarding{forward: forward{host: "h"}}, &forwarding{forward: forward{host: "h", url: urlFromServer}}
		for line := range lines {
			if len(line) > maxLine {
				t.Errorf("a line of %d bytes", len(line))
			}
			if url := quick.read(line); url != "" && !strings.HasSuffix(url, ".trycloudflare.com") {
				t.Errorf("cloudflared: %q", url)
			}
			if url := anyPort.read(line); url != "" && !strings.HasPrefix(url, "http://h:") {
				t.Errorf("ssh: %q", url)
			}
			if url := printed.read(line); url != "" && !strings.HasPrefix(url, "https://") {
				t.Errorf("ssh, printed: %q", url)
			}
		}
	})
}

// Under the name cloudflared, this test program is the stand-in for that program.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == cloudflared {
		os.Exit(standIn(os.Args, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

func TestCloudflaredConforms(t *testing.T) {
	tier.Long(t)
	tunneltest.Run(t, func(t *testing.T) tunneltest.Rig {
		f := installStandIn(t)
		return tunneltest.Rig{
			Tunnel: cloudflaredNow(nil),
			Drop:   f.kill,
			Change: f.kill,
			Refuse: func() { f.behave("limited") },
		}
	})
}

// cloudflaredNow returns a tunnel that gives up soon.
func cloudflaredNow(environ map[string]string) *Tunnel {
	return impatient(NewCloudflared(func(name string) string { return environ[name] }, nil))
}

// impatient gives a tunnel short delays.
func impatient(t *Tunnel) *Tunnel {
	t.retry.First, t.retry.GiveUp = tunneltest.QuickRetry, 10*tunneltest.QuickRetry
	return t
}

// The stand-in for cloudflared, which can't reach Cloudflare in a test, is this
// test program under that name. Its arguments and the form of the lines that it
// prints are those of the real program, as shown by its sources
// (cmd/cloudflared/tunnel/quick_tunnel.go) and the logs in its issues. Its
// "network" is a listener on loopback whose port is in the name that it prints.

// standInFolder is the folder of a stand-in, which comes first on PATH.
type standInFolder struct {
	t    *testing.T
	path string
}

func installStandIn(t *testing.T) *standInFolder {
	t.Helper()
	program, err := os.Executable()
	must(t, err)
	f := &standInFolder{t: t, path: t.TempDir()}
	must(t, os.Symlink(program, f.file(cloudflared)))
	t.Setenv("PATH", f.path+string(os.PathListSeparator)+os.Getenv("PATH"))
	return f
}

func (f *standInFolder) file(name string) string { return filepath.Join(f.path, name) }

// behave sets how programs behave that are started from now on.
func (f *standInFolder) behave(how string) {
	f.t.Helper()
	must(f.t, os.WriteFile(f.file("behaviour"), []byte(how), 0o600))
}

// started returns the pids of all programs that were started.
func (f *standInFolder) started() []int {
	raw, _ := os.ReadFile(f.file("started"))
	var pids []int
	for _, field := range strings.Fields(string(raw)) {
		pid, err := strconv.Atoi(field)
		must(f.t, err)
		pids = append(pids, pid)
	}
	return pids
}

// kill kills the program that was started last.
func (f *standInFolder) kill() {
	pids := f.started()
	must(f.t, syscall.Kill(pids[len(pids)-1], syscall.SIGKILL))
}

// standIn is the program.
func standIn(args []string, stderr io.Writer) int {
	folder := filepath.Dir(args[0])
	say := func(level, format string, words ...any) {
		fmt.Fprintf(stderr, "%s %s %s\n", time.Now().UTC().Format(time.RFC3339), level, fmt.Sprintf(format, words...))
	}
	behaviour, _ := os.ReadFile(filepath.Join(folder, "behaviour"))
	_ = os.WriteFile(filepath.Join(folder, "environ"), []byte(strings.Join(os.Environ(), "\n")), 0o600)
	if len(args) != 5 || args[1] != "tunnel" || args[2] != "--url" || args[4] != "--no-autoupdate" {
		fmt.Fprintf(stderr, "Incorrect Usage: %q\n", args)
		return 1
	}
	pids, err := os.OpenFile(filepath.Join(folder, "started"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return 1
	}
	fmt.Fprintln(pids, os.Getpid())
	pids.Close()
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)

	say("INF", "Thank you for trying Cloudflare Tunnel. Doing so, without a Cloudflare account, is a quick way to experiment and try it out. However, be aware that these account-less Tunnels have no uptime guarantee, are subject to the Cloudflare Online Services Terms of Use (https://www.cloudflare.com/website-terms/), and Cloudflare reserves the right to investigate your use of Tunnels for violations of such terms.")
	say("INF", "Requesting new quick Tunnel on trycloudflare.com...")
	if string(behaviour) == "limited" {
		say("ERR", `Error unmarshaling QuickTunnel response: error code: 1015 error="invalid character 'e' looking for beginning of value" status_code="429 Too Many Requests"`)
		fmt.Fprintln(stderr, "failed to unmarshal quick Tunnel: invalid character 'e' looking for beginning of value")
		return 1
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 1
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	say("INF", "|  Your quick Tunnel has been created! Visit it at (it may take some time to be reachable):  |")
	say("INF", "|  %-88s  |", "https://"+tunneltest.StandInName(port))
	say("INF", "Registered tunnel connection connIndex=0 connection=830bf962-7674-4e02-b648-65177c832c67 event=0 ip=198.41.192.167 location=lax08 protocol=quic")
	go http.Serve(l, standInEdge(args[3])) //nolint:errcheck // it ends with the program
	if string(behaviour) == "forgotten" {
		say("INF", "Unregistered tunnel connection connIndex=0 event=0 ip=198.41.192.167")
		say("INF", "Retrying connection in up to 1s connIndex=0 event=0 ip=198.41.192.167")
	}
	<-terminated
	say("INF", "Initiating graceful shutdown due to signal terminated ...")
	if string(behaviour) == "stubborn" {
		select {}
	}
	// Not by os.Exit: under the race detector that takes a second.
	signal.Reset(syscall.SIGTERM)
	_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
	select {}
}

// standInEdge forwards requests the way Cloudflare does: it sets a header to the
// visitor's address, whatever the visitor wrote there.
func standInEdge(target string) http.Handler {
	to, err := url.Parse(target)
	if err != nil {
		return http.NotFoundHandler()
	}
	return &httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Host = r.In.Host
			host, _, _ := net.SplitHostPort(r.In.RemoteAddr)
			r.Out.Header.Set("Cf-Connecting-Ip", host)
			r.Out.Header["X-Forwarded-For"] = r.In.Header["X-Forwarded-For"]
			r.SetXForwarded()
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
}

// must ends the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
