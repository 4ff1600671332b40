package browser

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/coder/websocket"

	"colabrelay/shared/e2e/harness"
)

// names are those of Chromium in the distributions.
var names = []string{"chromium", "chromium-browser", "google-chrome"}

// openWord is the first argument of a program that shall be Opener.
const openWord = "open-in-chromium"

// Chromium is a headless Chromium that is started by whatever opens a URL in the person's
// browser: the relay. A second URL opens a second tab in it.
type Chromium struct {
	Program string // what opens a URL, for the variable BROWSER

	dir     string
	profile string
}

// NewChromium returns a Chromium that is not started yet. It reaches colab and loopback and
// nothing else. The program that calls it must call Opener first.
func NewChromium(colab *Colab) (*Chromium, error) {
	program := ""
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil && program == "" {
			program = path
		}
	}
	if program == "" {
		return nil, errors.New("there is no Chromium on PATH: shared/e2e/browser/setup.sh installs one")
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "chromium-")
	if err != nil {
		return nil, err
	}
	secure, plain := port(colab.Secure.URL), port(colab.Plain.URL)
	rules := fmt.Sprintf("MAP %[1]s:443 127.0.0.1:%[2]s, MAP %[1]s:80 127.0.0.1:%[3]s, MAP *.example:443 127.0.0.1:%[2]s, MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1", Host, secure, plain)
	c := &Chromium{Program: filepath.Join(dir, "open"), dir: dir, profile: filepath.Join(dir, "profile")}
	return c, writeScript(c.Program, []string{self, openWord, c.profile, program,
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
		"--disable-dev-shm-usage", "--disable-features=HttpsUpgrades", "--remote-debugging-port=0", "--user-data-dir=" + c.profile,
		"--host-resolver-rules=" + rules, "--ignore-certificate-errors-spki-list=" + colab.KeyDigest,
	})
}

// Opener is what the program behind BROWSER does: it opens the URL that is the last argument,
// in the Chromium that runs, or else in one that it becomes. It reports whether the arguments
// ask for that; a headless Chromium that runs can't be told a URL in another way.
func Opener(args []string) (asked bool, err error) {
	if len(args) < 5 || args[1] != openWord {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	profile, command, address := args[2], args[3:], args[len(args)-1]
	if running, ok := devToolsAddress(profile); ok {
		if tools, err := dialDevTools(ctx, running); err == nil {
			defer tools.Close()
			return true, tools.call(ctx, "", "Target.createTarget", map[string]any{"url": address}, nil)
		}
	}
	return true, syscall.Exec(command[0], command, os.Environ())
}

// devToolsAddress returns where the browser of a profile is controlled.
func devToolsAddress(profile string) (address string, ok bool) {
	text, err := os.ReadFile(filepath.Join(profile, "DevToolsActivePort"))
	port, path, whole := strings.Cut(strings.TrimSpace(string(text)), "\n")
	return "ws://" + net.JoinHostPort("127.0.0.1", port) + path, err == nil && whole
}

func port(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		panic(err) // of a server that httptest started
	}
	return u.Port()
}

// Attach waits until something started the browser, and connects with it.
func (c *Chromium) Attach(ctx context.Context) (*DevTools, error) {
	address := ""
	err := harness.Poll(ctx, func() (started bool, _ error) {
		address, started = devToolsAddress(c.profile)
		return started, nil
	})
	if err != nil {
		return nil, fmt.Errorf("the browser was not started: %w", err)
	}
	return dialDevTools(ctx, address)
}

// Close ends the browser, if it runs, and removes its profile.
func (c *Chromium) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if target, err := os.Readlink(filepath.Join(c.profile, "SingletonLock")); err == nil { // HOST-PID
		pid, err := strconv.Atoi(target[strings.LastIndex(target, "-")+1:])
		if err != nil {
			return fmt.Errorf("read the browser's pid in %q: %w", target, err)
		}
		_ = syscall.Kill(pid, syscall.SIGTERM) // it may have ended
	}
	var failed error
	err := harness.Poll(ctx, func() (bool, error) { // its processes still write for a moment
		failed = os.RemoveAll(c.dir)
		return failed == nil, nil
	})
	if err != nil {
		return errors.Join(err, failed)
	}
	return nil
}

// maxMessage bounds a message of the browser, in bytes: pictures of pages are large.
const maxMessage = 64 << 20

// DevTools is a connection with a browser by the DevTools protocol.
type DevTools struct {
	conn   *websocket.Conn
	ended  chan struct{}
	cancel context.CancelFunc

	mu      sync.Mutex
	last    int
	waiting map[int]chan<- reply
	logged  map[string][]string // messages of a page's console, by session
}

type reply struct {
	Result json.RawMessage
	Error  *struct{ Message string }
}

// incoming is an answer or an event.
type incoming struct {
	reply
	ID        int
	Method    string
	SessionID string `json:"sessionId"`
	Params    struct {
		Entry struct{ Text string }
	}
}

func dialDevTools(ctx context.Context, address string) (*DevTools, error) {
	conn, _, err := websocket.Dial(ctx, address, nil)
	if err != nil {
		return nil, fmt.Errorf("connect with the browser: %w", err)
	}
	conn.SetReadLimit(maxMessage)
	reading, cancel := context.WithCancel(context.Background())
	d := &DevTools{conn: conn, ended: make(chan struct{}), cancel: cancel, waiting: map[int]chan<- reply{}, logged: map[string][]string{}}
	go d.read(reading)
	return d, nil
}

// Close ends the connection. The browser goes on.
func (d *DevTools) Close() {
	_ = d.conn.Close(websocket.StatusNormalClosure, "")
	d.cancel()
	<-d.ended
}

func (d *DevTools) read(ctx context.Context) {
	defer close(d.ended)
	for {
		_, raw, err := d.conn.Read(ctx)
		if err != nil {
			return
		}
		var in incoming
		if json.Unmarshal(raw, &in) != nil {
			continue // an event of another form
		}
		d.mu.Lock()
		if in.Method == "Log.entryAdded" {
			d.logged[in.SessionID] = append(d.logged[in.SessionID], in.Params.Entry.Text)
		}
		if waiting := d.waiting[in.ID]; in.ID != 0 && waiting != nil {
			delete(d.waiting, in.ID)
			waiting <- in.reply // has space for it
		}
		d.mu.Unlock()
	}
}

// call calls a method, of the browser if session is empty, and stores its result.
func (d *DevTools) call(ctx context.Context, session, method string, params, result any) error {
	answered := make(chan reply, 1)
	d.mu.Lock()
	d.last++
	id := d.last
	d.waiting[id] = answered
	d.mu.Unlock()
	raw, err := json.Marshal(map[string]any{"id": id, "method": method, "params": params, "sessionId": session})
	if session == "" {
		raw, err = json.Marshal(map[string]any{"id": id, "method": method, "params": params})
	}
	if err != nil {
		return err
	}
	if err := d.conn.Write(ctx, websocket.MessageText, raw); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	select {
	case r := <-answered:
		if r.Error != nil {
			return fmt.Errorf("%s: %s", method, r.Error.Message)
		}
		if result == nil {
			return nil
		}
		return json.Unmarshal(r.Result, result)
	case <-d.ended:
		return fmt.Errorf("%s: the browser ended", method)
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", method, ctx.Err())
	}
}

// target is a tab, or something like it, as the browser lists it.
type target struct {
	ID   string `json:"targetId"`
	Type string `json:"type"`
	URL  string `json:"url"`
}

// tabs returns the browser's tabs whose URL begins with prefix.
func (d *DevTools) tabs(ctx context.Context, prefix string) ([]target, error) {
	var all struct {
		TargetInfos []target `json:"targetInfos"`
	}
	if err := d.call(ctx, "", "Target.getTargets", map[string]any{}, &all); err != nil {
		return nil, err
	}
	var found []target
	for _, t := range all.TargetInfos {
		if t.Type == "page" && strings.HasPrefix(t.URL, prefix) {
			found = append(found, t)
		}
	}
	return found, nil
}

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
