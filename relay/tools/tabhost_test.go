package tools

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"colabrelay/relay/page"
	"colabrelay/relay/runtimes"
	"colabrelay/relay/toolsets"
	"colabrelay/shared/e2e/standin"
	"colabrelay/shared/within"
)

// tabDesk is a host whose relay has no runtime, and a person whose browser shows Colab's page.
type tabDesk struct {
	*host
	page *page.Page
	save string // LOCAL_SAVE_DIR

	mu   sync.Mutex
	tabs []*standin.Tab
}

// newTabDesk returns a desk whose browser opens tabs with these options.
func newTabDesk(t *testing.T, o standin.Options, cfg Config) *tabDesk {
	t.Helper()
	d := &tabDesk{save: t.TempDir()}
	d.page = page.New(page.Config{Version: "1", Open: func(ctx context.Context, url string) error {
		d.mu.Lock()
		defer d.mu.Unlock()
		tab, err := standin.Dial(ctx, url, o)
		if err == nil {
			d.tabs = append(d.tabs, tab)
		}
		return nil // the browser has opened, whatever its person does
	}})
	cfg.Resolve = func(string) (runtimes.Runtime, error) { return runtimes.Runtime{}, fmt.Errorf("nothing is paired") }
	cfg.Toolsets, cfg.Page, cfg.SaveDir, cfg.CheckpointDir = toolsets.All, d.page, d.save, t.TempDir()
	t.Cleanup(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, tab := range d.tabs {
			tab.Close()
		}
	})
	t.Cleanup(d.page.Close) // first: it waits for the browser
	d.host = startHost(t, cfg)
	return d
}

// connected is newTabDesk with a tab that is connected.
func connected(t *testing.T, o standin.Options) *tabDesk {
	t.Helper()
	d := newTabDesk(t, o, Config{})
	d.connect()
	return d
}

func (d *tabDesk) connect(pairs ...any) {
	d.t.Helper()
	r := d.untilEnd("open_colab_browser_connection", pairs...)
	if got := decode[PageConnection](d.t, r.Structured); r.IsError || !got.Connected {
		d.t.Fatalf("%s", r.Structured)
	}
}

// untilEnd repeats a call as its answer says, until that is about something that has ended.
func (d *tabDesk) untilEnd(tool string, pairs ...any) (r result) {
	d.t.Helper()
	within.Until(d.t, "the end of "+tool, func() bool {
		r = d.ask(tool, pairs...)
		state := decode[struct {
			Waiting bool
			Status  string
		}](d.t, r.Structured)
		return !state.Waiting && state.Status != "running"
	})
	return r
}

// ask calls a tool without notebook_path, with arguments in pairs.
func (d *tabDesk) ask(tool string, pairs ...any) result {
	d.t.Helper()
	arguments := args(pairs...)
	delete(arguments, "notebook_path")
	return d.call(tool, arguments)
}

// refused checks that a call ends with an error of this code, whose texts have these words.
func (d *tabDesk) refused(r result, code string, words ...string) {
	d.t.Helper()
	p := r.outcome(d.t).Error
	if p == nil || p.Code != code || p.Hint == "" {
		d.t.Errorf("%s, want the code %q", r.Structured, code)
		return
	}
	for _, word := range words {
		if !strings.Contains(p.Message+" "+p.Hint, word) {
			d.t.Errorf("%+v does not say %q", p, word)
		}
	}
}
