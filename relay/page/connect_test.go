package page

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"colabrelay/shared/e2e/standin"
	"colabrelay/shared/within"
)

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
	w, err := d.begin("")
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	defer tab.Close()
	if _, err := p.Connect(t.Context(), Request{}, nil); err != nil {
		t.Error(err)
	}
}

func TestOneNotebookAtATime(t *testing.T) {
	const x, y = "https://colab.research.google.com/drive/X", "https://colab.research.google.com/drive/Y"
	d := newDesk(t, standin.Options{})
	tab, err := d.connect(Request{NotebookURL: x})
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
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
