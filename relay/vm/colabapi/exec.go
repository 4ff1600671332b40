package colabapi

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/coder/websocket"
	"github.com/google/uuid"

	"colabrelay/relay/client"
	"colabrelay/relay/plain"
	"colabrelay/relay/vm"
	"colabrelay/shared/bounded"
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

const (
	// maxJupyterAnswer bounds an answer of a VM's Jupyter server other than a file.
	maxJupyterAnswer = 1 << 20
	// jupyterTimeout bounds one request to it.
	jupyterTimeout = 60 * time.Second
)

// jupyter calls the Jupyter server of one VM through Google's proxy. Code on the VM can make
// it answer anything.
type jupyter struct {
	transport http.RoundTripper
	id        string // of the VM
}

func (b *Backend) jupyterOf(id string) (jupyter, error) {
	return jupyter{&portTransport{b, id, jupyterPort}, id}, checkID(id)
}

// newRequest returns a request whose host the transport replaces.
func newRequest(ctx context.Context, method, path string, body []byte) (*http.Request, error) {
	u := url.URL{Scheme: "https", Host: "vm.invalid", Path: path}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body == nil {
		req.Body, req.GetBody, req.ContentLength = nil, nil, 0
	} else {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("User-Agent", "colab-relay")
	return req, nil
}

// do sends a request and returns the answer's body, bounded. An answer other than 2xx is an
// *jupyterError.
func (j jupyter) do(ctx context.Context, method, path string, body any) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, jupyterTimeout)
	defer cancel()
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	req, err := newRequest(ctx, method, path, text)
	if err != nil {
		return nil, err
	}
	res, err := client.EndingWithContext(j.transport).RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	answer, err := bounded.ReadAll(res.Body, maxJupyterAnswer)
	if res.StatusCode/100 != 2 {
		return nil, &jupyterError{j.id, res.StatusCode}
	}
	return answer, err
}

// jupyterError is an answer that is no success. Its text is not shown: it may be anything.
type jupyterError struct {
	id     string
	status int
}

func (e *jupyterError) Error() string {
	switch {
	case e.status == http.StatusNotFound || e.status == http.StatusUnauthorized:
		return fmt.Sprintf("VM %q answered HTTP %d, also to a fresh token: what was asked for is missing there, or Google's proxy does not reach the VM", e.id, e.status)
	case e.status/100 == 3:
		return fmt.Sprintf("VM %q answered with a redirect (HTTP %d), which is not followed", e.id, e.status)
	}
	return fmt.Sprintf("VM %q answered HTTP %d", e.id, e.status)
}

// Touch implements vm.Backend. It lists the kernels. Whether that counts as use of the VM is
// unverified; Google's own extension sends requests to the proxy for this purpose.
func (b *Backend) Touch(ctx context.Context, id string) error {
	j, err := b.jupyterOf(id)
	if err == nil {
		_, err = j.do(ctx, http.MethodGet, "/api/kernels", nil)
	}
	if err != nil {
		return fmt.Errorf("keep VM %q alive: %w", id, err)
	}
	return nil
}

// kernelPattern matches a kernel's id, which becomes part of paths.
var kernelPattern = regexp.MustCompile(`^[0-9a-fA-F-]{1,64}$`)

// startKernel starts a helper kernel.
func (j jupyter) startKernel(ctx context.Context) (string, error) {
	text, err := j.do(ctx, http.MethodPost, "/api/kernels", struct{}{})
	if err != nil {
		return "", fmt.Errorf("start a kernel on the VM: %w", err)
	}
	var kernel struct {
		ID string `json:"id"`
	}
	if json.Unmarshal(text, &kernel) != nil || !kernelPattern.MatchString(kernel.ID) {
		return "", errors.New("start a kernel on the VM: its Jupyter server answers in an unknown form")
	}
	return kernel.ID, nil
}

// endKernel deletes a helper kernel. Programs that it started detached run on. A kernel that
// can't be deleted now ends with the VM.
func (j jupyter) endKernel(ctx context.Context, kernel string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	_, _ = j.do(ctx, http.MethodDelete, "/api/kernels/"+kernel, nil)
}

// compareFile compares a file of the VM with what it should contain.
func (j jupyter) compareFile(ctx context.Context, path string, content []byte) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	req, err := newRequest(ctx, http.MethodGet, "/files"+path, nil)
	if err != nil {
		return false, err
	}
	res, err := client.EndingWithContext(j.transport).RoundTrip(req)
	if err != nil {
		return false, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return false, &jupyterError{j.id, res.StatusCode}
	}
	return equals(res.Body, content)
}

// equals reads at most one piece more than content has.
func equals(r io.Reader, content []byte) (bool, error) {
	piece := make([]byte, 64<<10)
	for {
		n, err := r.Read(piece)
		if n > len(content) || !bytes.Equal(piece[:n], content[:n]) {
			return false, nil
		}
		content = content[n:]
		if err == io.EOF {
			return len(content) == 0, nil
		}
		if err != nil {
			return false, err
		}
	}
}

const (
	// maxMessage bounds one message of a kernel. A larger one ends the execution.
	maxMessage = 16 << 20
	// maxErrorText bounds the name and the text of an exception.
	maxErrorText = 1000
)

// message is a message of Jupyter's protocol, in the JSON form of its WebSockets.
type message struct {
	Header   header          `json:"header"`
	Parent   header          `json:"parent_header"`
	Metadata struct{}        `json:"metadata"`
	Content  json.RawMessage `json:"content"`
	Channel  string          `json:"channel"`
	Buffers  []struct{}      `json:"buffers"`
}

type header struct {
	ID       string `json:"msg_id,omitempty"`
	Type     string `json:"msg_type,omitempty"`
	Session  string `json:"session,omitempty"`
	Username string `json:"username"`
	Date     string `json:"date,omitempty"`
	Version  string `json:"version,omitempty"`
}

// execution is one execute_request and what it produced.
type execution struct {
	code, session, id string

	output      tail
	raised      *vm.ExecError
	replied     bool
	idle        bool
	reconnected bool // the message of its end may be lost
}

// request returns the execute_request, which leaves no trace in the kernel's history.
func (e *execution) request() []byte {
	content, _ := json.Marshal(map[string]any{
		"code": e.code, "silent": false, "store_history": false, "user_expressions": struct{}{}, "allow_stdin": false, "stop_on_error": true,
	})
	text, _ := json.Marshal(message{
		Header:  header{ID: e.id, Type: "execute_request", Session: e.session, Date: time.Now().UTC().Format(time.RFC3339Nano), Version: "5.3"},
		Content: content, Channel: "shell", Buffers: []struct{}{},
	})
	return text
}

// incoming is the part of a message that is read.
type incoming struct {
	Header  header          `json:"header"`
	Parent  header          `json:"parent_header"`
	Content json.RawMessage `json:"content"`
}

// receive reads one message. Messages of unknown form, and those about other requests, are
// ignored, except that the kernel died.
func (e *execution) receive(frame []byte) error {
	var m incoming
	if json.Unmarshal(frame, &m) != nil {
		return nil
	}
	var c struct {
		Text  string `json:"text"`
		State string `json:"execution_state"`
		Name  string `json:"ename"`
		Value string `json:"evalue"`
	}
	if json.Unmarshal(m.Content, &c) != nil {
		return nil
	}
	if m.Header.Type == "status" && (c.State == "restarting" || c.State == "autorestarting" || c.State == "dead") {
		return errKernelDied
	}
	if m.Parent.ID != e.id {
		return nil
	}
	switch m.Header.Type {
	case "stream":
		e.output.write(c.Text)
	case "error":
		e.raised = &vm.ExecError{Name: shortened(c.Name), Value: shortened(c.Value)}
	case "execute_reply":
		e.replied = true
	case "status":
		e.idle = e.idle || c.State == "idle"
	}
	return nil
}

// ended reports whether nothing more can follow: the reply and the idle status come over two
// sockets, in any order.
func (e *execution) ended() bool { return e.replied && e.idle }

// patience is how long to wait for the next message.
func (e *execution) patience() time.Duration {
	switch {
	case e.replied || e.idle:
		return idleGrace
	case e.reconnected:
		return silence
	}
	return math.MaxInt64
}

// lateEnd is the result if no more messages come.
func (e *execution) lateEnd() error {
	if e.replied || e.idle {
		return nil
	}
	return errEndLost
}

// shortened cuts an outside text to maxErrorText bytes at a whole character.
func shortened(text string) string {
	text = plain.Line(text)
	if len(text) <= maxErrorText {
		return text
	}
	return strings.ToValidUTF8(text[:maxErrorText], "")
}

// tail keeps the end of what was printed, at most vm.MaxOutput bytes.
type tail struct{ kept []byte }

func (t *tail) write(text string) {
	if len(text) >= vm.MaxOutput {
		t.kept = append(t.kept[:0], text[len(text)-vm.MaxOutput:]...)
		return
	}
	t.kept = append(t.kept, text...)
	// Cutting at twice the bound keeps the cost of many small texts linear.
	if len(t.kept) > 2*vm.MaxOutput {
		t.kept = append(t.kept[:0], t.kept[len(t.kept)-vm.MaxOutput:]...)
	}
}

// String returns what is kept, from a whole character on.
func (t *tail) String() string {
	return strings.ToValidUTF8(string(t.kept[max(0, len(t.kept)-vm.MaxOutput):]), "")
}

const (
	// chunkSize is how much of a file one request carries, before base64. Colab's own page
	// sends chunks of this size; larger requests were refused (unverified).
	chunkSize = 1 << 20
	// uploadTries bounds how often a file is sent whole.
	uploadTries = 3
)

// contentsFile is the model of a file in Jupyter's contents API.
type contentsFile struct {
	Type    string `json:"type"`
	Format  string `json:"format"`
	Content string `json:"content"`
	Chunk   int    `json:"chunk,omitempty"` // 1, 2, …, -1 for the last; 0 for a file in one piece
}

// Upload implements vm.Backend. A chunk whose answer was lost is never sent again, because
// the server would append it twice: the whole file is. The file is then read back.
func (b *Backend) Upload(ctx context.Context, id, remotePath string, content []byte) error {
	fail := func(err error) error { return fmt.Errorf("upload %q to VM %q: %w", remotePath, id, err) }
	j, err := b.jupyterOf(id)
	switch {
	case err != nil:
		return err
	case !strings.HasPrefix(remotePath, "/") || path.Clean(remotePath) != remotePath || strings.ContainsRune(remotePath, 0):
		return fail(errors.New("the path must be absolute, without empty or dotted parts"))
	case len(content) > vm.MaxUpload:
		return fail(fmt.Errorf("it has %d bytes, and at most %d can be sent", len(content), vm.MaxUpload))
	}
	var last error
	for range uploadTries {
		if last = j.uploadOnce(ctx, remotePath, content); last == nil {
			return nil
		}
		if refused, ok := errors.AsType[*jupyterError](last); ok && refused.status/100 == 4 || ctx.Err() != nil || gone(last) {
			break
		}
	}
	return fail(last)
}

func (j jupyter) uploadOnce(ctx context.Context, remotePath string, content []byte) error {
	for start, chunk := 0, 1; start < len(content) || chunk == 1; chunk++ {
		piece := content[start:min(start+chunkSize, len(content))]
		start += len(piece)
		model := contentsFile{Type: "file", Format: "base64", Content: base64.StdEncoding.EncodeToString(piece), Chunk: chunk}
		switch {
		case start == len(content) && chunk == 1:
			model.Chunk = 0
		case start == len(content):
			model.Chunk = -1
		}
		if _, err := j.do(ctx, http.MethodPut, "/api/contents"+remotePath, model); err != nil {
			return err
		}
	}
	same, err := j.compareFile(ctx, remotePath, content)
	if err == nil && !same {
		err = errors.New("the file that arrived there is another one")
	}
	return err
}
