// The proxies command checks the relay with real proxies: nginx and haproxy in front of an
// executor, squid and tinyproxy as those of a company, each with the configuration that Debian
// ships and the few lines that route to the executor. It runs them as its own children, on ports of
// loopback, and prints a table; the exit code is 1 if a check failed. -only NAME does one proxy.
//
// setup.sh has installed them. Start reading at trial.
package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"colabrelay/shared/auth"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/freeport"
	"colabrelay/shared/stacks"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "proxies:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	only := flag.String("only", "", "the proxy to check; empty for all")
	flag.Parse()
	dir, err := os.MkdirTemp("", "colab-relay-proxies-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binaries, err := harness.Build(ctx, dir)
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	var trials []*trial
	for _, p := range proxies {
		if *only == "" || *only == p.name {
			t := &trial{proxy: p, relay: binaries.Relay, dir: filepath.Join(dir, p.name)}
			trials = append(trials, t)
			running.Go(func() { t.err = harness.Try(func() { t.run(ctx, binaries.Executor) }) })
		}
	}
	running.Wait()
	var failed error
	fmt.Print("\n| proxy | status | silent for 150 s | a line after 70 s | 20 MB of output | put and get of 50 MB | a restart during a run | another port |\n|---|---|---|---|---|---|---|---|\n")
	for _, t := range trials {
		fmt.Printf("| %s | %s |\n", t.name, strings.Join(t.outcomes, " | "))
		failed = errors.Join(failed, t.err)
	}
	return failed
}

// trial is what one proxy is checked with. It has its own executor, because a kernel runs one thing
// at a time.
type trial struct {
	proxy
	relay, dir string
	listen     string   // the address of the proxy
	args       []string // of the proxy
	env        []string // of the relay
	process    *exec.Cmd
	outcomes   []string
	err        error
}

func (t *trial) run(ctx context.Context, executor string) {
	harness.Check(os.MkdirAll(t.dir, 0o700))
	secret := auth.GenerateSecret().Reveal()
	e := harness.Must(harness.StartExecutor(ctx, harness.ExecutorConfig{Binary: executor, Python: filepath.Join(stacks.Root(), ".python", "old", "bin", "python"), Dir: t.dir, Secret: secret}))
	defer e.Kill()
	target := strings.TrimPrefix(e.Ready.LocalURL, "http://")
	t.listen = harness.Must(freeport.Address())
	t.env = []string{"HOME=" + t.dir, "COLAB_SECRET=" + secret, "COLAB_URL=http://" + t.listen}
	if t.forward {
		address, certificate, end := newSecure(t.dir, target)
		defer end()
		target = address
		t.env = append(t.env, "COLAB_URL=https://"+target, "HTTPS_PROXY=http://someone:hidden@"+t.listen, "SSL_CERT_FILE="+certificate)
	}
	t.args = t.configure(t.dir, t.listen, target)
	harness.Check(t.start(ctx))
	defer t.stop()
	another := t.otherPort
	if t.name != "squid" { // the only one that, as shipped, allows one port
		another = nil
	}
	harness.Check(errors.Join(
		t.check(ctx, "status", func(ctx context.Context) error { _, err := t.command(ctx, "status"); return err }),
		t.check(ctx, "silent for 150 s", t.prints("import time; time.sleep(150); print('end')", "end\n")),
		t.check(ctx, "a line after 70 s", t.prints("import time; time.sleep(70); print('one')", "one\n")),
		t.check(ctx, "20 MB of output", t.prints("for n in range(200_000): print('x' * 99)", strings.Repeat(strings.Repeat("x", 99)+"\n", 200_000))),
		t.check(ctx, "put and get of 50 MB", t.transfer),
		t.check(ctx, "a restart during a run", t.restart),
		t.check(ctx, "another port", another),
	))
}

// check notes how long f took, unless it is nil.
func (t *trial) check(ctx context.Context, name string, f func(context.Context) error) error {
	if f == nil {
		t.outcomes = append(t.outcomes, "")
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	began := time.Now()
	err := f(limited)
	outcome := fmt.Sprintf("%.1f s", time.Since(began).Seconds())
	if err != nil {
		outcome = "FAILED"
		err = fmt.Errorf("%s: %s: %w", t.name, name, err)
	}
	t.outcomes = append(t.outcomes, outcome)
	fmt.Printf("%s: %s: %s\n", t.name, name, outcome)
	return err
}

// start starts the proxy and waits until it listens.
func (t *trial) start(ctx context.Context) error {
	t.process = exec.Command(t.program, t.args...)
	t.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := t.process.Start(); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	err := harness.Poll(limited, func() (bool, error) {
		conn, err := net.Dial("tcp", t.listen)
		if err == nil {
			conn.Close()
		}
		return err == nil, nil
	})
	if err != nil {
		t.stop()
	}
	return err
}

// stop ends the proxy with all its processes.
func (t *trial) stop() {
	_ = syscall.Kill(-t.process.Process.Pid, syscall.SIGKILL)
	_ = t.process.Wait()
}

// command runs a command of the relay and returns its output. What it wrote to stderr is in err.
func (t *trial) command(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, t.relay, args...)
	cmd.Env, cmd.Dir = t.env, t.dir
	var out, problems strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &problems
	err := cmd.Run()
	fmt.Print(problems.String())
	if err != nil {
		err = fmt.Errorf("%w: %.2000s%s", err, out.String(), problems.String())
	}
	return out.String(), err
}

// prints checks that code prints want.
func (t *trial) prints(code, want string) func(context.Context) error {
	return func(ctx context.Context) error {
		got, err := t.command(ctx, "run", "-c", code)
		if err == nil && got != want {
			err = fmt.Errorf("%d bytes came of %d", len(got), len(want))
		}
		return err
	}
}

// transfer sends 50 MB of noise there and back.
func (t *trial) transfer(ctx context.Context) error {
	noise := make([]byte, 50_000_000)
	_, _ = mathrand.NewChaCha8([32]byte{}).Read(noise)
	there, back := filepath.Join(t.dir, "there.bin"), filepath.Join(t.dir, "back.bin")
	return harness.Try(func() {
		harness.Check(os.WriteFile(there, noise, 0o600))
		harness.Must(t.command(ctx, "put", there, "on-the-vm.bin"))
		harness.Must(t.command(ctx, "get", "on-the-vm.bin", back))
		harness.FailIf(!bytes.Equal(harness.Must(os.ReadFile(back)), noise), "other bytes came back")
	})
}

// restart ends the proxy during a run and starts it again.
func (t *trial) restart(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() {
		ended <- t.prints("import time\nfor n in range(12): print(n, flush=True); time.sleep(1)", "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n")(ctx)
	}()
	<-time.After(4 * time.Second)
	t.stop()
	<-time.After(4 * time.Second)
	return errors.Join(t.start(ctx), <-ended)
}

// otherPort asks a company's proxy for a port that it does not allow. Proxy and status must be named.
func (t *trial) otherPort(ctx context.Context) error {
	t.env = append(t.env, "COLAB_URL=https://vm.test:8444")
	_, err := t.command(ctx, "status")
	if err == nil || !strings.Contains(err.Error(), "http://"+t.listen+" refuses") || !strings.Contains(err.Error(), "HTTP 403") || strings.Contains(err.Error(), "hidden") {
		return fmt.Errorf("the refusal is not named: %w", err)
	}
	return nil
}

// proxy is a program with the configuration that Debian ships.
type proxy struct {
	name, program, args, shipped string
	forward                      bool   // it gets CONNECT; the others stand in front of the executor
	service                      string // expression of the lines that belong to its service, such as its pid file
	after                        string // the line of the configuration that own and added follow; empty for the last
	own                          string // in place of the service's lines
	added                        string // what routes to the executor, as docs/networks.md prints it
}

var proxies = []proxy{
	{
		name: "nginx", program: "/usr/sbin/nginx", args: "-p DIR -c DIR/conf -e stderr", shipped: "/etc/nginx/nginx.conf",
		service: `^(user|pid|error_log|include).*|^\s*(access_log|include /etc/nginx/sites).*`, after: "include /etc/nginx/conf.d/*.conf;",
		own:   "access_log off; client_body_temp_path DIR/a; proxy_temp_path DIR/b; fastcgi_temp_path DIR/c; uwsgi_temp_path DIR/d; scgi_temp_path DIR/e;",
		added: "server {\n    listen LISTEN;\n    location / {\n        proxy_pass http://TARGET;\n    }\n}",
	},
	{
		name: "haproxy", program: "/usr/sbin/haproxy", args: "-db -f DIR/conf", shipped: "/etc/haproxy/haproxy.cfg", service: `^\s*(log|chroot|stats|user|group|daemon)\b.*`,
		added: "listen executor\n    bind LISTEN\n    server vm TARGET",
	},
	{
		name: "squid", program: "/usr/sbin/squid", args: "-N -f DIR/conf", shipped: "/etc/squid/squid.conf", forward: true, service: `^(http_port|coredump_dir).*`,
		own: "http_port LISTEN\npid_filename none\naccess_log none\ncache_log /dev/null",
	},
	{
		name: "tinyproxy", program: "/usr/bin/tinyproxy", args: "-d -c DIR/conf", shipped: "/etc/tinyproxy/tinyproxy.conf", forward: true, service: `^(User|Group|Port|LogFile|PidFile)\b.*`,
		own: "Listen 127.0.0.1\nPort PORT",
	},
}

// configure writes the configuration into dir and returns the program's arguments.
func (p proxy) configure(dir, listen, target string) []string {
	text := regexp.MustCompile(`(?m)`+p.service).ReplaceAllString(string(harness.Must(os.ReadFile(p.shipped))), "")
	head, rest := text, ""
	if p.after != "" {
		head, rest, _ = strings.Cut(text, p.after)
		head += p.after
	}
	if p.name == "nginx" {
		head = "daemon off; user root; pid nginx.pid;\n" + head
	}
	if port := target[strings.LastIndex(target, ":")+1:]; p.name == "squid" && port != "443" {
		head = strings.Replace(head, "acl SSL_ports port 443", "acl SSL_ports port 443 "+port, 1)
	}
	values := strings.NewReplacer("DIR", dir, "LISTEN", listen, "TARGET", target, "PORT", listen[strings.LastIndex(listen, ":")+1:])
	text = head + "\n" + values.Replace(p.own+"\n"+p.added) + "\n" + rest
	harness.Check(os.WriteFile(filepath.Join(dir, "conf"), []byte(text), 0o600))
	return strings.Fields(values.Replace(p.args))
}

// newSecure starts a stand-in of a tunnel's service, which ends TLS in front of an executor. It
// listens at this computer's name, because no proxy is used for localhost, at the port of https if
// it may. It returns its address and the file of its certificate.
func newSecure(dir, target string) (address, certificate string, end func()) {
	host := harness.Must(os.Hostname())
	key := harness.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{host}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der := harness.Must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))
	certificate = filepath.Join(dir, "certificate.pem")
	harness.Check(os.WriteFile(certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	through := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: target})
	through.FlushInterval = -1
	through.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server := httptest.NewUnstartedServer(through)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	server.Listener.Close()
	var err error
	if server.Listener, err = net.Listen("tcp", host+":443"); err != nil {
		server.Listener = harness.Must(net.Listen("tcp", host+":0"))
	}
	server.StartTLS()
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	return net.JoinHostPort(host, port), certificate, server.Close
}
