package page

import (
	"context"
	"errors"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"colabrelay/shared/e2e/standin"
	"colabrelay/shared/within"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// desk is a Page with a person whose browser opens what the Page asks for.
type desk struct {
	*Page
	t      *testing.T
	mu     sync.Mutex
	opened []string
	tabs   []*standin.Tab
	turns  int
}

// newDesk returns a Page whose browser opens a tab with these options.
func newDesk(t *testing.T, o standin.Options, change ...func(*Page)) *desk {
	t.Helper()
	d := &desk{t: t}
	d.Page = New(Config{Version: "1.2.3", Open: func(ctx context.Context, url string) error {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.opened = append(d.opened, url)
		tab, err := standin.Dial(ctx, url, o)
		if errors.Is(err, standin.ErrDeclined) {
			return nil
		}
		d.tabs = append(d.tabs, tab)
		return err
	}})
	for _, f := range change {
		f(d.Page)
	}
	t.Cleanup(func() {
		d.Close()
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, tab := range d.tabs {
			if tab != nil {
				tab.Close()
			}
		}
	})
	return d
}

// tab returns the first tab that the browser opened.
func (d *desk) tab() (tab *standin.Tab) {
	d.t.Helper()
	within.Until(d.t, "a tab is open", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		if len(d.tabs) > 0 {
			tab = d.tabs[0]
		}
		return tab != nil
	})
	return tab
}

func (d *desk) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.opened)
}

func (d *desk) connect(r Request) (*Tab, error) {
	return d.Connect(within.Context(d.t), r, nil)
}

func (d *desk) connected() *Tab {
	d.t.Helper()
	tab, err := d.connect(Request{})
	if err != nil {
		d.t.Fatal(err)
	}
	return tab
}
