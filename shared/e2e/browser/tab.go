package browser

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"

	"colabrelay/shared/e2e/harness"
)

// Tab is a tab of the browser.
type Tab struct {
	tools   *DevTools
	target  string
	session string
	URL     string // with its fragment
}

// Open opens a tab, as a person or a hostile page does.
func (d *DevTools) Open(ctx context.Context, address string) (*Tab, error) {
	var made target
	if err := d.call(ctx, "", "Target.createTarget", map[string]any{"url": address}, &made); err != nil {
		return nil, err
	}
	made.URL = address
	return d.attach(ctx, made)
}

// Opened waits for a tab whose URL begins with prefix and that known does not have.
func (d *DevTools) Opened(ctx context.Context, prefix string, known ...*Tab) (*Tab, error) {
	var found target
	err := harness.Poll(ctx, func() (bool, error) {
		all, err := d.tabs(ctx, prefix)
		for _, t := range all {
			isNew := true
			for _, k := range known {
				isNew = isNew && k.target != t.ID
			}
			if isNew {
				found = t
				return true, nil
			}
		}
		return false, err
	})
	if err != nil {
		return nil, fmt.Errorf("no tab shows %s: %w", prefix, err)
	}
	return d.attach(ctx, found)
}

func (d *DevTools) attach(ctx context.Context, t target) (*Tab, error) {
	var attached struct {
		SessionID string `json:"sessionId"`
	}
	if err := d.call(ctx, "", "Target.attachToTarget", map[string]any{"targetId": t.ID, "flatten": true}, &attached); err != nil {
		return nil, err
	}
	tab := &Tab{tools: d, target: t.ID, session: attached.SessionID, URL: t.URL}
	return tab, d.call(ctx, tab.session, "Log.enable", map[string]any{}, nil)
}

// Close closes the tab as a person does.
func (t *Tab) Close(ctx context.Context) error {
	return t.tools.call(ctx, "", "Target.closeTarget", map[string]any{"targetId": t.target}, nil)
}

// Logged returns what the page's console shows.
func (t *Tab) Logged() string {
	t.tools.mu.Lock()
	defer t.tools.mu.Unlock()
	return strings.Join(t.tools.logged[t.session], "\n")
}

// Eval evaluates JavaScript in the page and stores its value.
func (t *Tab) Eval(ctx context.Context, code string, value any) error {
	var answer struct {
		Result           struct{ Value any }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	answer.Result.Value = value
	if err := t.tools.call(ctx, t.session, "Runtime.evaluate", map[string]any{"expression": code, "returnByValue": true, "awaitPromise": true}, &answer); err != nil {
		return err
	}
	if e := answer.ExceptionDetails; e != nil {
		return fmt.Errorf("%s: %s %s", code, e.Text, e.Exception.Description)
	}
	return nil
}

// Text returns the text that a person sees in the element of a CSS selector, "" without one.
func (t *Tab) Text(ctx context.Context, selector string) (string, error) {
	text := ""
	err := t.Eval(ctx, fmt.Sprintf("document.querySelector(%q)?.innerText ?? ''", selector), &text)
	return text, err
}

// Await waits until JavaScript in the page is true.
func (t *Tab) Await(ctx context.Context, condition string) error {
	err := harness.Poll(ctx, func() (bool, error) {
		holds := false
		err := t.Eval(ctx, "Boolean("+condition+")", &holds)
		if err != nil && ctx.Err() == nil {
			return false, nil // the page is loading
		}
		return holds, err
	})
	if err != nil {
		return fmt.Errorf("the page does not come to %s: %w", condition, err)
	}
	return nil
}

// Click clicks with the mouse on the middle of an element.
func (t *Tab) Click(ctx context.Context, selector string) error {
	if err := t.Await(ctx, fmt.Sprintf("document.querySelector(%q)?.getClientRects().length", selector)); err != nil {
		return err
	}
	var at struct{ X, Y float64 }
	if err := t.Eval(ctx, fmt.Sprintf("(({x, y, width, height}) => ({X: x + width / 2, Y: y + height / 2}))(document.querySelector(%q).getBoundingClientRect())", selector), &at); err != nil {
		return err
	}
	for _, kind := range []string{"mousePressed", "mouseReleased"} {
		event := map[string]any{"type": kind, "x": at.X, "y": at.Y, "button": "left", "clickCount": 1}
		if err := t.tools.call(ctx, t.session, "Input.dispatchMouseEvent", event, nil); err != nil {
			return err
		}
	}
	return nil
}

// Confirm clicks through the dialog that asks whether to connect, and waits until the tab is
// connected.
func (t *Tab) Confirm(ctx context.Context) error {
	if err := t.Click(ctx, "#connect"); err != nil {
		return err
	}
	return t.Await(ctx, "document.querySelector('#status')?.dataset.state === 'on'")
}

// Picture returns the whole page as a PNG, width pixels of CSS wide.
func (t *Tab) Picture(ctx context.Context, width int) ([]byte, error) {
	if err := t.tools.call(ctx, t.session, "Emulation.setScrollbarsHidden", map[string]any{"hidden": true}, nil); err != nil {
		return nil, err
	}
	for _, height := range []int{800, 0} { // first with any height, so that the page has its own
		if height == 0 {
			if err := t.Eval(ctx, "document.documentElement.offsetHeight", &height); err != nil {
				return nil, err
			}
		}
		if err := t.tools.call(ctx, t.session, "Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 2, "mobile": false}, nil); err != nil {
			return nil, err
		}
	}
	var picture struct{ Data string }
	if err := t.tools.call(ctx, t.session, "Page.captureScreenshot", map[string]any{"format": "png"}, &picture); err != nil {
		return nil, err
	}
	return base64.StdEncoding.DecodeString(picture.Data)
}
