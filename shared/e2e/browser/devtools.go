package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"github.com/coder/websocket"
)

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
