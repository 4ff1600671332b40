package page

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
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
	must(d.t, err)
	return tab
}

// waitedOut returns a ctx that has ended.
func waitedOut(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func TestWaitingGoesOnAfterTheCaller(t *testing.T) {
	d := &desk{t: t}
	release, dialed, opened := make(chan struct{}), make(chan *standin.Tab, 1), 0
	ctx, cancel := context.WithCancel(t.Context())
	d.Page = New(Config{Open: func(_ context.Context, url string) error {
		opened++
		defer cancel()
		go func() {
			<-release
			tab, err := standin.Dial(context.Background(), url, standin.Options{})
			if err != nil {
				t.Error(err)
			}
			dialed <- tab
		}()
		return nil
	}})
	_, err := d.Connect(ctx, Request{}, nil)
	var waiting *WaitingError
	if !errors.As(err, &waiting) || waiting.Browser != nil || !strings.Contains(waiting.URL, d.currentToken()) {
		t.Fatalf("got %v", err)
	}
	if state := d.State(); !state.Waiting || state.Connected {
		t.Errorf("the state is %+v", state)
	}
	close(release)
	d.connected()
	if opened != 1 {
		t.Errorf("the browser was opened %d times", opened)
	}
	d.Close()
	(<-dialed).Close()
}

func TestNobodyConnectsInTime(t *testing.T) {
	var log bytes.Buffer
	d := newDesk(t, standin.Options{Declined: true}, func(p *Page) { p.log = slog.New(slog.NewTextHandler(&log, nil)) })
	w, _, err := d.begin("")
	must(t, err)
	old := d.currentToken()
	for range 3 {
		d.try(t, target("/?access_token=wrong")).conn.Close()
		d.try(t, origin("https://evil.example")).conn.Close()
	}
	d.Page.mu.Lock()
	d.giveUp() // as when the time is over
	d.Page.mu.Unlock()
	<-w.done
	err = w.err
	var none *NoTabError
	if !errors.As(err, &none) {
		t.Fatalf("got %v", err)
	}
	fresh := d.currentToken()
	if fresh == old || !strings.Contains(none.URL, fresh) || d.State().Waiting {
		t.Errorf("the URL has an old token, or the Page waits: %+v", d.State())
	}
	if len(none.Refused) != 2 {
		t.Errorf("the reasons are %q, want each once", none.Refused)
	}
	for _, text := range []string{err.Error(), log.String()} {
		if strings.Contains(text, fresh) || strings.Contains(text, old) || strings.Contains(text, "mcpProxyToken") {
			t.Errorf("the token is in %q", text)
		}
	}
	if answer := d.try(t, target("/?access_token="+old)); answer.StatusCode != 403 {
		t.Errorf("the old URL is answered with %d", answer.StatusCode)
	}
	// A person who opens the URL of the error later connects without a further call.
	tab, err := standin.Dial(t.Context(), none.URL, standin.Options{})
	must(t, err)
	defer tab.Close()
	within.Until(t, "the tab is connected", func() bool { return d.State().Connected })
	d.Close()
}

// Without a browser the caller gets the URL at once, and the next call waits.
func TestNoBrowser(t *testing.T) {
	p := New(Config{Open: func(_ context.Context, url string) error { return fmt.Errorf("xdg-open %s: not found", url) }})
	defer p.Close()
	_, err := p.Connect(t.Context(), Request{}, nil)
	var waiting *WaitingError
	if !errors.As(err, &waiting) || waiting.Browser == nil || !strings.Contains(err.Error(), "not found") || strings.Contains(err.Error(), p.currentToken()) {
		t.Fatalf("got %v", err)
	}
	tab, err := standin.Dial(t.Context(), waiting.URL, standin.Options{})
	must(t, err)
	defer tab.Close()
	if _, err := p.Connect(t.Context(), Request{}, nil); err != nil {
		t.Error(err)
	}
}

func TestOneNotebookAtATime(t *testing.T) {
	const x, y = "https://colab.research.google.com/drive/X", "https://colab.research.google.com/drive/Y"
	d := newDesk(t, standin.Options{})
	tab, err := d.connect(Request{NotebookURL: x})
	must(t, err)
	for _, same := range []string{x, ""} {
		if again, err := d.connect(Request{NotebookURL: same}); again != tab || err != nil {
			t.Errorf("%q: another tab, %v", same, err)
		}
	}
	_, err = d.connect(Request{NotebookURL: y})
	var other *OtherNotebookError
	if !errors.As(err, &other) || other.Notebook != x || !other.Connected {
		t.Errorf("got %v", err)
	}
	if d.count() != 1 {
		t.Errorf("the browser was opened %d times", d.count())
	}
}

func TestTabIsLostAndComesBack(t *testing.T) {
	d := newDesk(t, standin.Options{Execute: standin.Fake(func(ctx context.Context, _ string) []map[string]any {
		<-ctx.Done()
		return nil
	})})
	tab := d.connected()
	token := d.currentToken()
	cells, err := tab.Cells(t.Context(), 0, -1, false)
	must(t, err)
	failed := make(chan error, 1)
	go func() {
		_, err := tab.Run(t.Context(), cells[0].ID)
		failed <- err
	}()
	within.Until(t, "the cell runs", func() bool { return strings.Contains(d.tab().Everything(), toolRun) })
	d.tab().Drop()
	if err := <-failed; !errors.Is(err, ErrTabLost) || !strings.Contains(err.Error(), "may still be running") {
		t.Errorf("the run ended with %v", err)
	}
	<-tab.Done()
	if _, err := tab.Cells(t.Context(), 0, -1, false); !errors.Is(err, ErrTabLost) {
		t.Errorf("a call to a lost tab ended with %v", err)
	}
	if _, err := tab.Run(t.Context(), "x"); !errors.Is(err, ErrTabLost) {
		t.Errorf("a run in a lost tab ended with %v", err)
	}
	d.free(t)
	if _, connected := d.Tab(); connected || d.currentToken() == token {
		t.Error("the tab counts as connected, or its URL opens another one")
	}
	if again := d.connected(); again == tab || d.count() != 2 {
		t.Errorf("the browser was opened %d times", d.count())
	}
}

// A second tab with the right token is told that there is one; the first one is not disturbed.
func TestSecondTabIsRefused(t *testing.T) {
	d := newQuietDesk(t)
	p := d.ready(t)
	tab, _ := d.Tab()
	second := d.peer(t)
	if code := second.closed(); code != 1013 {
		t.Errorf("the second tab was closed with %d, want 1013", code)
	}
	ended := make(chan error, 1)
	go func() { ended <- tab.Delete(t.Context(), "c") }()
	p.answerText(p.request("tools/call"), "{}")
	if err := <-ended; err != nil {
		t.Errorf("the first tab was disturbed: %v", err)
	}
}

// A tab whose token changed between the check and the connection does not get the slot.
func TestTokenThatChangedMeanwhile(t *testing.T) {
	p := New(Config{})
	old := p.currentToken()
	p.token = newToken() // as the end of a server does
	if p.take(nil, old) != nil || p.slot != nil {
		t.Error("a tab with an old token has the slot")
	}
}

func TestNotebookURLs(t *testing.T) {
	for _, good := range []string{
		"", "https://colab.research.google.com", "https://colab.research.google.com/", EmptyNotebook,
		"https://colab.google.com/x", "https://colab.research.google.com/drive/1aB?authuser=1",
		"https://colab.research.google.com/github/o/r/blob/main/a%20b.ipynb#scrollTo=x",
		"https://colab.research.google.com/gist/o/abc",
	} {
		if err := CheckNotebookURL(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for bad, want := range map[string]string{
		"colab.research.google.com/drive/1":           "https://",
		"http://colab.research.google.com/":           "https://",
		"javascript:alert(1)//colab.google.com":       "https://",
		"https://evil.example/":                       "does not belong",
		"https://colab.research.google.com.evil.com/": "does not belong",
		"https://colab.research.google.com@evil.com/": "names a user",
		"https://evil.com#https://colab.google.com/":  "does not belong",
		"https://colab.google.com\\@evil.example":     "",
		"https://c\u043elab.google.com/":              "does not belong",
		"https://colab.google.com/\nx":                "",
		"https://colab.google.com/%zz":                "no valid form",
	} {
		err := CheckNotebookURL(bad)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", bad, err, want)
		}
	}
}

func TestAddresses(t *testing.T) {
	const end = "#mcpProxyToken=T&mcpProxyPort=8765"
	for notebook, want := range map[string]string{
		"": "https://colab.research.google.com/notebooks/empty.ipynb?p=8765" + end,
		"https://colab.research.google.com/drive/1?authuser=1#scrollTo=x": "https://colab.research.google.com/drive/1?authuser=1&p=8765" + end,
		"https://colab.research.google.com/github/o/r/blob/m/a%20b.ipynb": "https://colab.research.google.com/github/o/r/blob/m/a%20b.ipynb?p=8765" + end,
		"https://colab.google.com/a%2Fb?":                                 "https://colab.google.com/a%2Fb?p=8765" + end,
		"https://colab.google.com/x#mcpProxyToken=old&mcpProxyPort=1":     "https://colab.google.com/x?p=8765" + end,
		"https://colab.google.com/\"x y?a=\"b#c#d":                        "https://colab.google.com/%22x%20y?a=%22b&p=8765" + end,
	} {
		if got, err := address(notebook, 8765, "T"); got != want || err != nil {
			t.Errorf("%q: %q, %v; want %q", notebook, got, err, want)
		}
	}
}

// must ends the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
