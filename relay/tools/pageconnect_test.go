package tools

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"colabrelay/relay/bridge"
	"colabrelay/relay/hint"
	"colabrelay/relay/page"
	"colabrelay/relay/pairing"
	"colabrelay/shared/e2e/standin"
)

func TestConnectingATab(t *testing.T) {
	d := newTabDesk(t, standin.Options{}, Config{})
	for _, tool := range []string{"open_colab_browser_connection", "get_cells", "run_code_cell", "move_cell"} { // before any tab
		if !strings.Contains(string(d.list), `"name":"`+tool+`"`) {
			t.Errorf("%s is not in the list", tool)
		}
	}
	d.refused(d.ask("get_cells"), "no_tab", "open_colab_browser_connection first")
	r := d.ask("open_colab_browser_connection")
	got := decode[PageConnection](t, r.Structured)
	if r.IsError || !got.Connected || got.Waiting || got.URL != "" || got.NextCommand != "" {
		t.Errorf("%s", r.Structured)
	}
}

// These errors take a minute, or another program, to happen.
func TestWhyNoTabIsConnected(t *testing.T) {
	c := &call{Relay: New(Config{})}
	const url = "https://colab.research.google.com/#mcpProxyToken=fresh"
	for name, test := range map[string]struct {
		err     error
		code    string
		waiting bool
		words   string
	}{
		"late":       {&page.NoTabError{URL: url, Refused: []string{"wrong token"}}, "no_tab", false, "dialog"},
		"no browser": {&page.WaitingError{URL: url, Browser: errors.New("xdg-open is missing")}, "", true, "xdg-open is missing"},
		"closed":     {page.ErrClosed, "tab_lost", false, "call again"},
		"other tab":  {&page.OtherNotebookError{Connected: true}, "conflict", false, "close that tab"},
	} {
		got := &PageConnection{}
		p := got.notConnected(test.err, openArgs{}, c)
		if (p == nil) != (test.code == "") || p != nil && (p.Code != test.code || !strings.Contains(p.Message, test.words)) || got.Waiting != test.waiting {
			t.Errorf("%s: %+v %+v", name, got, p)
		}
		var b words
		got.text(&b)
		if _, late := test.err.(*page.NoTabError); late || test.waiting {
			if got.URL != url || !strings.Contains(b.String(), url) || !strings.Contains(b.String()+fmt.Sprint(p), test.words) {
				t.Errorf("%s: %s", name, b.String())
			}
		}
	}
}

func TestStartingTheExecutor(t *testing.T) {
	calls := 0
	d := newTabDesk(t, standin.Options{}, Config{StartExecutor: func(ctx context.Context, tab *page.Tab, r bridge.Request, step func(string)) (bridge.Paired, error) {
		step("downloading the executor")
		switch calls++; {
		case tab == nil || ctx.Err() != nil || r != bridge.Request{Name: "mine", StatusCell: true}:
			return bridge.Paired{}, fmt.Errorf("tab %v, request %+v", tab, r)
		case calls == 1:
			return bridge.Paired{}, &bridge.StartingError{Step: "running a cell"}
		case calls == 2:
			return bridge.Paired{}, bridge.ErrExpired
		}
		return bridge.Paired{Runtime: pairing.Runtime{Name: "mine"}, Notes: []string{"the status cell runs"}}, nil
	}})
	start := func() (result, PageConnection) {
		t.Helper()
		r := d.ask("open_colab_browser_connection", "start_executor", true, "runtime", "mine", "statusCell", true)
		return r, decode[PageConnection](t, r.Structured)
	}
	r, got := start()
	if r.IsError || !got.Connected || !got.Waiting || !strings.HasPrefix(got.NextCommand, "open_colab_browser_connection(start_executor=true, ") || !strings.Contains(r.Content[0].Text, "still being started") {
		t.Errorf("%s", r.Structured)
	}
	r, _ = start()
	d.refused(r, hint.CodeNoExecutor, "180 s")
	r, got = start()
	if r.IsError || got.Executor != "mine" || got.Waiting || !strings.Contains(r.Content[0].Text, `runtime "mine"`) || !strings.Contains(r.Content[0].Text, "status cell") {
		t.Errorf("%s", r.Structured)
	}
}
