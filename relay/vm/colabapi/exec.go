package colabapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/coder/websocket"
	"github.com/google/uuid"
)

const (
	// reconnects bounds how often the connection to a kernel is made again while code runs.
	reconnects = 5
	// reconnectPause follows an attempt that did not reach the kernel.
	reconnectPause = time.Second
	// silence is how long a kernel may say nothing after a reconnect before the relay asks
	// whether the code still runs: the message that it has ended may be lost.
	silence = 10 * time.Second
	// idleGrace is how long the kernel's idle status may follow the reply. The server drops
	// messages of a kernel that prints too fast.
	idleGrace = 2 * time.Second
)

var errKernelDied = errors.New("the kernel on the VM died while the code ran")

// Exec implements vm.Backend. Every call has a kernel of its own.
func (b *Backend) Exec(ctx context.Context, id, code string, timeout time.Duration) (string, error) {
	j, err := b.jupyterOf(id)
	if err != nil {
		return "", err
	}
	kernel, err := j.startKernel(ctx)
	if err != nil {
		return "", fmt.Errorf("VM %q: %w", id, err)
	}
	defer j.endKernel(ctx, kernel)
	over := fmt.Errorf("the code ran for more than %s and was interrupted: %w", timeout, context.DeadlineExceeded)
	running, cancel := context.WithTimeoutCause(ctx, timeout, over)
	defer cancel()
	e := newExecution(code)
	if err = j.execute(running, kernel, e); running.Err() != nil && err != nil {
		err = context.Cause(running)
		j.interrupt(ctx, kernel)
	}
	if err == nil && e.raised != nil {
		return e.output.String(), e.raised
	}
	if err != nil {
		err = fmt.Errorf("run code on VM %q: %w", id, err)
	}
	return e.output.String(), err
}

// interrupt lets the code end by a KeyboardInterrupt before its kernel is deleted.
func (j jupyter) interrupt(ctx context.Context, kernel string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_, _ = j.do(ctx, http.MethodPost, "/api/kernels/"+kernel+"/interrupt", nil)
}

// execute sends the code once and reads messages until it has ended. A broken connection is
// made again; the server keeps what the kernel says meanwhile.
func (j jupyter) execute(ctx context.Context, kernel string, e *execution) error {
	sent := false
	var lost error
	for range 1 + reconnects {
		c, err := j.dial(ctx, kernel, e.session)
		if err != nil && (!sent || gone(err)) {
			return fmt.Errorf("connect to the kernel: %w", err)
		}
		if lost = err; err != nil { // the network may come back
			if err := pauseFor(ctx, reconnectPause); err != nil {
				return err
			}
			continue
		}
		if !sent {
			sent = true // even if the answer is an error: the code may have arrived
			lost = c.Write(ctx, websocket.MessageText, e.request())
		}
		if lost == nil {
			lost = j.follow(ctx, c, kernel, e)
		}
		_ = c.CloseNow()
		if lost == nil || ctx.Err() != nil || errors.Is(lost, errKernelDied) || errors.Is(lost, errEndLost) || websocket.CloseStatus(lost) == websocket.StatusMessageTooBig {
			return lost
		}
		e.reconnected = true
	}
	return fmt.Errorf("the connection to the kernel broke %d times; the code may have run: %w", reconnects+1, lost)
}

// dial opens the kernel's channels. It sends no Origin: the proxy answers foreign ones with 404.
func (j jupyter) dial(ctx context.Context, kernel, session string) (*websocket.Conn, error) {
	c, res, err := websocket.Dial(ctx, "wss://vm.invalid/api/kernels/"+kernel+"/channels?session_id="+session, &websocket.DialOptions{HTTPClient: &http.Client{
		Transport:     j.transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}})
	if err != nil {
		if res != nil {
			return nil, &jupyterError{j.id, res.StatusCode}
		}
		return nil, err
	}
	c.SetReadLimit(maxMessage)
	return c, nil
}

// errEndLost: the code has ended, and the kernel's reply is lost.
var errEndLost = errors.New("the connection broke while the code ran, and its result is lost")

// follow reads messages until the code has ended.
func (j jupyter) follow(ctx context.Context, c *websocket.Conn, kernel string, e *execution) error {
	frames := make(chan []byte)
	broken := make(chan error, 1)
	reading, stop := context.WithCancel(ctx)
	defer stop()
	go func() { broken <- readFrames(reading, c, frames) }()
	for {
		wait := e.patience()
		timer := time.NewTimer(wait)
		select {
		case frame := <-frames:
			timer.Stop()
			if err := e.receive(frame); err != nil || e.ended() {
				stop()
				<-broken
				return err
			}
		case err := <-broken:
			timer.Stop()
			return err
		case <-timer.C:
			if e.replied || !j.isBusy(ctx, kernel) {
				stop()
				<-broken
				return e.lateEnd()
			}
		}
	}
}

func readFrames(ctx context.Context, c *websocket.Conn, frames chan<- []byte) error {
	for {
		kind, frame, err := c.Read(ctx)
		if err != nil {
			return err
		}
		if kind != websocket.MessageText {
			continue // a message with buffers, such as a widget's
		}
		select {
		case frames <- frame:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// isBusy asks whether a kernel still runs code. Without an answer it may.
func (j jupyter) isBusy(ctx context.Context, kernel string) bool {
	text, err := j.do(ctx, http.MethodGet, "/api/kernels/"+kernel, nil)
	var model struct {
		State string `json:"execution_state"`
	}
	return err != nil || json.Unmarshal(text, &model) != nil || model.State != "idle"
}

func newExecution(code string) *execution {
	return &execution{code: code, session: uuid.NewString(), id: uuid.NewString()}
}
