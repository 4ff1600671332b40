package cloudflared

import (
	"errors"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

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
	tun := impatient(Config{})
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
	start(t, impatient(Config{Getenv: func(name string) string { return environ[name] }}), hello).URL()
	raw, err := os.ReadFile(f.file("environ"))
	if err != nil {
		t.Fatal(err)
	}
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
			r := start(t, impatient(Config{}), hello)
			r.URL()
			_ = r.Stop()
			if err := syscall.Kill(f.started()[0], 0); !errors.Is(err, syscall.ESRCH) {
				t.Errorf("the program still runs: %v", err)
			}
		})
	}
}

func FuzzLinesOfCloudflared(f *testing.F) {
	f.Add("2023-04-18T14:06:49Z INF |  https://a-b.trycloudflare.com  |\nINF Registered tunnel connection")
	f.Add("2023-04-18T14:06:49Z INF |  https://a.trycloudflare.com.evil.example  |\nINF Registered tunnel connection")
	f.Fuzz(func(t *testing.T, output string) {
		r := &logReader{up: func(url string) {
			if !strings.HasSuffix(url, ".trycloudflare.com") {
				t.Errorf("reported %q", url)
			}
		}, log: slog.New(slog.DiscardHandler)}
		lines := make(chan string)
		go readLines(strings.NewReader(output), lines)
		for line := range lines {
			if len(line) > maxLogLine {
				t.Errorf("a line of %d bytes", len(line))
			}
			r.read(line)
		}
	})
}
