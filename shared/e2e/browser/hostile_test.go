//go:build chromium

package browser

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Other pages that learned the port and the token can't connect: the browser says whose they
// are. The person's page connects afterwards with the same token.
func TestPagesOfOthersAreRefused(t *testing.T) {
	s := newStage(t)
	call := s.begin("open_colab_browser_connection", map[string]any{})
	tab := s.opened()
	u, err := url.Parse(tab.URL)
	s.must(err)
	fragment := "#" + u.EscapedFragment()
	for origin, address := range map[string]string{
		"https://evil.example":                          "https://evil.example/page/dial.html",
		"https://colab.research.google.com.example":     "https://colab.research.google.com.example/page/dial.html",
		"https://evilcolab.research.google.com.example": "https://evilcolab.research.google.com.example/page/dial.html",
		"http://" + Host:                                "http://" + Host + "/page/dial.html",
		"null":                                          page + "page/dial.html?frame",
	} {
		hostile, err := s.tools.Open(s.ctx, address+fragment)
		s.must(err)
		s.must(hostile.Await(s.ctx, "document.title.startsWith('closed') || document.title.startsWith('open')"))
		title := ""
		s.must(hostile.Eval(s.ctx, "document.title", &title))
		if title != "closed from "+origin+": 1006" {
			t.Errorf("%s: the page says %q", address, title)
		}
		// The console of the frame is not that of its page.
		if log := hostile.Logged(); origin != "null" && !strings.Contains(log, "Unexpected response code: 403") {
			t.Errorf("%s: the browser's console says %q", address, log)
		}
	}
	s.must(tab.Confirm(s.ctx))
	s.end(call)
	for _, hidden := range []string{u.EscapedFragment(), strings.TrimPrefix(strings.Split(u.EscapedFragment(), "&")[0], "mcpProxyToken=")} {
		if strings.Contains(s.host.Stderr.String(), hidden) {
			t.Errorf("the relay logged %q", hidden)
		}
	}
}

// Chromium's arguments, which other users of the computer can read, hold no token.
func TestTheTokenIsInNoArgument(t *testing.T) {
	s := newStage(t)
	tab := s.connect(map[string]any{})
	u, err := url.Parse(tab.URL)
	s.must(err)
	token, err := url.ParseQuery(u.EscapedFragment())
	s.must(err)
	all, err := arguments()
	s.must(err)
	if !strings.Contains(all, "http://127.0.0.1:") {
		t.Errorf("no program has the link as its argument:\n%s", all)
	}
	if strings.Contains(all, token.Get("mcpProxyToken")) {
		t.Error("a program has the token among its arguments")
	}
}

// arguments returns those of all programs, as other users of this computer see them.
func arguments() (string, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return "", err
	}
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has just ended
		}
		all.WriteString(strings.ReplaceAll(string(text), "\x00", " ") + "\n")
	}
	return all.String(), nil
}
