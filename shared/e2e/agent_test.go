package e2e

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/e2e/standin"
	"colabrelay/shared/within"
)

// agent is an MCP host whose relay opens the page. Everything that the relay writes to the host
// is kept.
type agent struct {
	*harness.Host
	p      *colabPage
	opened string // file with the link that the browser was given last
	stdio  string // file with all bytes from the relay to the host
}

// agent starts an MCP host on the laptop.
func (p *colabPage) agent() *agent {
	p.t.Helper()
	dir := p.t.TempDir()
	a := &agent{p: p, opened: filepath.Join(dir, "opened"), stdio: filepath.Join(dir, "stdio")}
	browser := filepath.Join(dir, "browser")
	must(p.t, os.WriteFile(browser, []byte("#!/bin/sh\nprintf %s \"$1\" > "+a.opened+".new && mv "+a.opened+".new "+a.opened+"\n"), 0o700))
	h, err := harness.StartHost(within.Context(p.t), harness.HostConfig{
		// The relay takes the shell's place, so that Kill kills it.
		Binary: "/bin/bash", Args: []string{"-c", `exec "$0" serve > >(tee "$1")`, binaries.Relay, a.stdio}, Dir: p.laptop,
		Env: append([]string{"BROWSER=" + browser, "RELAY_HOLD=3s", "RELAY_TOOLSETS=all"}, p.env()...),
	})
	must(p.t, err)
	p.t.Cleanup(func() {
		h.Close()
		if p.t.Failed() {
			p.t.Logf("the relay logged:\n%s", h.Stderr)
		}
	})
	a.Host = h
	return a
}

// connect calls the tool that opens the page, and opens the page as the browser does. end waits
// for the answer that does not say to call again.
func (a *agent) connect(args map[string]any) (tab *standin.Tab, end func() harness.Answer) {
	a.p.t.Helper()
	must(a.p.t, os.RemoveAll(a.opened))
	ctx := within.Context(a.p.t)
	answered := make(chan harness.Answer, 1)
	var calls sync.WaitGroup
	calls.Go(func() { answered <- a.repeat(ctx, args) })
	a.p.t.Cleanup(calls.Wait)
	var url string
	must(a.p.t, harness.Poll(within.Context(a.p.t), func() (bool, error) {
		text, err := os.ReadFile(a.opened)
		if err == nil {
			url, err = redirected(string(text))
		}
		return err == nil, nil
	}))
	return a.p.open(url), func() harness.Answer { return <-answered }
}

// repeat calls the tool until its answer does not say to call again.
func (a *agent) repeat(ctx context.Context, args map[string]any) harness.Answer {
	got, _ := a.Call(ctx, "open_colab_browser_connection", args) // fails if the relay is killed
	for got.Fields["waiting"] == true {
		got, _ = a.Call(ctx, "open_colab_browser_connection", args)
	}
	return got
}

// redirected returns where a page on loopback leads, as a browser follows it, but to nobody.
func redirected(url string) (string, error) {
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		return "", err
	}
	return answer.Header.Get("Location"), answer.Body.Close()
}
