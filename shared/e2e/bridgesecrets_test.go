package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/auth"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/e2e/standin"
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
	h, err := harness.StartHost(within(p.t, 30*time.Second), harness.HostConfig{
		Binary: "/bin/sh", Args: []string{"-c", `"$0" serve | tee "$1"`, binaries.Relay, a.stdio}, Dir: p.laptop,
		Env: append([]string{"BROWSER=" + browser, "RELAY_HOLD=5s", "RELAY_TOOLSETS=all"}, p.env()...),
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

// connect asks for the page and opens it as the browser does.
func (a *agent) connect(args map[string]any) *standin.Tab {
	a.p.t.Helper()
	must(a.p.t, os.RemoveAll(a.opened))
	answered := make(chan error, 1)
	go func() {
		_, err := a.Call(within(a.p.t, time.Minute), "open_colab_browser_connection", args)
		answered <- err
	}()
	var url string
	must(a.p.t, harness.Poll(within(a.p.t, 30*time.Second), func() (bool, error) {
		text, err := os.ReadFile(a.opened)
		if err == nil {
			url, err = redirected(string(text))
		}
		return err == nil, nil
	}))
	tab := a.p.open(url)
	must(a.p.t, <-answered)
	return tab
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

// start repeats the call that starts an executor until it is answered.
func (a *agent) start(args map[string]any) harness.Answer {
	a.p.t.Helper()
	var got harness.Answer
	must(a.p.t, harness.Poll(within(a.p.t, 90*time.Second), func() (bool, error) {
		got = call(a.p.t, a.Host, "open_colab_browser_connection", args)
		return got.Fields["waiting"] != true, nil
	}))
	return got
}

var startExecutorArgs = map[string]any{"start_executor": true}

func TestOneCallPairsAndNothingShowsASecret(t *testing.T) {
	t.Parallel()
	p := newColabPage(t)
	a := p.agent()
	a.connect(startExecutorArgs)
	want(t, a.start(startExecutorArgs), map[string]any{"success": true, "connected": true, "executor": "default"})
	want(t, quick(t, a.Host, "6 * 7"), map[string]any{"success": true, "result": "42", "runtime": "default"})
	if !slices.Equal(p.cells(), []string{"x = 1"}) {
		t.Errorf("the notebook has the cells %q", p.cells())
	}
	r := p.paired("default")
	if auths := p.edge.Auths(); len(auths) == 0 || auths[0].Extra.Authtoken != p.token {
		t.Error("the executor did not log in with the relay's token")
	}
	again := call(t, a.Host, "open_colab_browser_connection", startExecutorArgs)
	want(t, again, map[string]any{"success": true, "executor": "default"})
	if len(p.executors()) != 1 {
		t.Errorf("the executors %v run", p.executors())
	}
	p.showNo(a, 1, map[string]string{
		"secret": r.Secret.Reveal(), "authtoken": p.token, "pairing string": auth.Pairing{URL: r.URL, Secret: r.Secret}.String(),
	})
}

// keyShown matches the public keys in the cells and outputs of an enrollment.
var keyShown = regexp.MustCompile(`(?:RELAY_KEY = |"key": )\\*"([A-Za-z0-9_-]{43})`)

// showNo looks for secrets, and for the private keys of the keys that the page saw, in all that
// page, relay, processes and files show. Only two files may hold them.
func (p *colabPage) showNo(a *agent, enrollments int, secrets map[string]string) {
	p.t.Helper()
	all := places{"the relay's log": []byte(a.Stderr.String())}
	var seen strings.Builder
	for _, tab := range p.tabs {
		seen.WriteString(tab.Everything())
	}
	all["the page"] = []byte(seen.String())
	stdio, err := os.ReadFile(a.stdio)
	must(p.t, err)
	all["what the host got"] = stdio
	all.addProcesses()
	all.addFiles(p.t, p.laptop, p.tokenFile(), filepath.Join(p.laptop, "config", "colab-relay", "runtimes.json"))
	all.addFiles(p.t, p.vm, filepath.Join(p.vm, "content", "executor")) // the released program
	var keys []string
	for _, match := range keyShown.FindAllStringSubmatch(strings.ReplaceAll(seen.String(), `\`, ""), -1) {
		keys = append(keys, match[1])
	}
	slices.Sort(keys)
	if keys = slices.Compact(keys); len(keys) != 2*enrollments {
		p.t.Errorf("the page saw %d public keys in %d enrollments", len(keys), enrollments)
	}
	p.t.Logf("%d places were searched; the page saw %d bytes", len(all), seen.Len())
	all.hold(p.t, secrets, keys...)
}
