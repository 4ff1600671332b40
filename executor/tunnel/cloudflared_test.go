package tunnel

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func quickCloudflared(t *testing.T, c Config) *cloudflaredTunnel {
	t.Helper()
	c.Kind = KindCloudflared
	tun := mustNew(t, c).(*cloudflaredTunnel)
	tun.retry, tun.patience = quickRetry, 10*quickRetry
	return tun
}

func cloudflaredRefusal(t *testing.T, tun Tunnel) string {
	t.Helper()
	err := start(t, tun, hello).ended(t)
	if !errors.As(err, new(*Refused)) {
		t.Fatalf("it ended with %v", err)
	}
	return err.Error()
}

func TestAMissingCloudflaredIsToldWithWhereToGetIt(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if text := cloudflaredRefusal(t, quickCloudflared(t, Config{})); !strings.Contains(text, "not on PATH; install it from https://") {
		t.Errorf("it says %q", text)
	}
}

func TestACloudflaredForAnotherMachineIsTold(t *testing.T) {
	f := installStandIn(t)
	program := f.file(cloudflaredProgram)
	if err := os.Remove(program); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, []byte("\x7fELF of another machine"), 0o700); err != nil {
		t.Fatal(err)
	}
	if text := cloudflaredRefusal(t, quickCloudflared(t, Config{})); !strings.Contains(text, "can't be started") {
		t.Errorf("it says %q", text)
	}
}

func TestACloudflaredWithoutATunnelIsGivenUpWithItsOwnWords(t *testing.T) {
	for behaviour, words := range map[string]string{
		"limited":     "failed to unmarshal quick Tunnel",
		"unreachable": "no such host",
		"unconnected": "Failed to dial a quic connection",
	} {
		t.Run(behaviour, func(t *testing.T) {
			f := installStandIn(t)
			f.Behave(behaviour)
			tun := quickCloudflared(t, Config{})
			tun.up = 10 * quickRetry
			if text := cloudflaredRefusal(t, tun); !strings.Contains(text, words) || strings.Contains(text, "\n") {
				t.Errorf("it says %q", text)
			}
			if len(f.Started()) < 2 {
				t.Error("it was not tried again")
			}
		})
	}
}

func TestATunnelThatCloudflareForgotIsOpenedAnew(t *testing.T) {
	f := installStandIn(t)
	f.Behave("forgotten")
	tun := quickCloudflared(t, Config{})
	tun.up = 10 * quickRetry
	r := start(t, tun, hello)
	old := r.url(t)
	f.Behave("")
	until(t, "another program runs", func() bool { return len(f.Started()) > 1 })
	url := old
	until(t, "its URL answers", func() bool {
		url = r.latest(url)
		_, body, err := visit(t, url)
		return url != old && err == nil && body == "hello"
	})
}

func TestCloudflaredIsGivenNoSecret(t *testing.T) {
	f := installStandIn(t)
	environ := map[string]string{
		"EXECUTOR_SECRET": "secret one", "NGROK_AUTHTOKEN": "secret two", "TUNNEL_TOKEN": "secret three",
		"HOME": "/home/of", "TUNNEL_TRANSPORT_PROTOCOL": "http2",
	}
	for name, value := range environ {
		t.Setenv(name, value)
	}
	start(t, quickCloudflared(t, Config{Getenv: func(name string) string { return environ[name] }}), hello).url(t)
	raw, err := os.ReadFile(f.file("environ"))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(string(raw)); got != "HOME=/home/of\nTUNNEL_TRANSPORT_PROTOCOL=http2" {
		t.Errorf("it is given\n%s", got)
	}
}

func TestCloudflaredEndsWithTheTunnel(t *testing.T) {
	for _, behaviour := range []string{"", "stubborn"} {
		t.Run("behaves "+behaviour, func(t *testing.T) {
			f := installStandIn(t)
			f.Behave(behaviour)
			r := start(t, quickCloudflared(t, Config{}), hello)
			r.url(t)
			began := time.Now()
			r.stop(t)
			if took := time.Since(began); took > 3*time.Second {
				t.Errorf("the end took %s", took)
			}
			if err := syscall.Kill(f.Started()[0], 0); !errors.Is(err, syscall.ESRCH) {
				t.Errorf("the program lives: %v", err)
			}
		})
	}
}

// Only our own cloudflared's word counts for who visits.
func TestTheHeaderOfCloudflareIsNotHeededElsewhere(t *testing.T) {
	url := start(t, NewNone("127.0.0.1:0"), http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		fmt.Fprintf(w, "%q", ClientAddr(req))
	})).url(t)
	if _, body := lie(t, url, "127.0.0.9"); body != `""` {
		t.Errorf("ClientAddr is %s", body)
	}
}

func TestLinesOfCloudflared(t *testing.T) {
	type state struct {
		URL, Said, Told string
		Up              bool
	}
	for name, c := range map[string]struct {
		lines []string
		want  state
	}{
		"before the connection stands": {
			[]string{"2021-09-03T10:44:41Z INF |  https://symantec-transferred-lock-revenues.trycloudflare.com                              |"},
			state{URL: "https://symantec-transferred-lock-revenues.trycloudflare.com", Said: "INF |  https://symantec-transferred-lock-revenues.trycloudflare.com                              |"},
		},
		"once it stands": {
			[]string{"2023-04-18T14:06:49Z INF |  https://a-b.trycloudflare.com  |", "2024-02-08T06:25:48Z INF Registered tunnel connection connIndex=0 ip=198.41.192.167"},
			state{URL: "https://a-b.trycloudflare.com", Told: "https://a-b.trycloudflare.com", Up: true, Said: "INF Registered tunnel connection connIndex=0 ip=198.41.192.167"},
		},
		"of an older version": {
			[]string{"2022-06-01T16:23:11Z INF |  https://a.trycloudflare.com  |", "2022-06-01T16:23:12Z INF Connection c206cf44-945f-4c3c-a85c-af60c6338dc2 registered connIndex=0 location=ORD"},
			state{URL: "https://a.trycloudflare.com", Told: "https://a.trycloudflare.com", Up: true, Said: "INF Connection c206cf44-945f-4c3c-a85c-af60c6338dc2 registered connIndex=0 location=ORD"},
		},
		"a fault that names the service": {
			[]string{`failed to request quick Tunnel: Post "https://api.trycloudflare.com/tunnel": dial tcp: i/o timeout`, "goodbye"},
			state{Said: `failed to request quick Tunnel: Post "https://api.trycloudflare.com/tunnel": dial tcp: i/o timeout`},
		},
		"a page of another domain in a box": {
			[]string{"2023-04-18T14:06:49Z INF |  https://a.trycloudflare.com.evil.example  |"},
			state{Said: "INF |  https://a.trycloudflare.com.evil.example  |"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got state
			q := &quickTunnel{tell: func(url string) { got.Told = url }, log: slog.New(slog.DiscardHandler)}
			for _, line := range c.lines {
				q.read(line)
			}
			got.URL, got.Said, got.Up = q.url, q.said, q.registered
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func FuzzLinesOfCloudflared(f *testing.F) {
	f.Add("2023-04-18T14:06:49Z INF |  https://a-b.trycloudflare.com  |\nINF Registered tunnel connection")
	f.Fuzz(func(t *testing.T, output string) {
		q := &quickTunnel{tell: func(url string) {
			if !strings.HasSuffix(url, ".trycloudflare.com") {
				t.Errorf("told %q", url)
			}
		}, log: slog.New(slog.DiscardHandler)}
		lines := make(chan string)
		go readLines(io.LimitReader(strings.NewReader(output), int64(len(output))), lines)
		for line := range lines {
			if len(line) > maxLogLine {
				t.Errorf("a line of %d bytes", len(line))
			}
			q.read(line)
		}
	})
}
