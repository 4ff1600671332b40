package colabapi

import (
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
	"strings"
	"time"

	"github.com/coder/websocket"
	"github.com/google/uuid"

	"colabrelay/relay/plain"
	"colabrelay/relay/vm"
	"colabrelay/shared/bounded"
	"colabrelay/shared/lazy"
)

const (
	// maxJupyterAnswer bounds an answer of a VM's Jupyter server.
	maxJupyterAnswer = 1 << 20
	// jupyterTimeout bounds one request to it.
	jupyterTimeout = 60 * time.Second
)

// jupyterHost stands for the Jupyter server's: the transport replaces what follows the port.
const jupyterHost = jupyterPort + "-vm.invalid"

// jupyter calls the Jupyter server of one VM through Google's proxy. Code on the VM can make
// it answer anything.
type jupyter struct {
	transport http.RoundTripper
	id        string // of the VM
}

func (b *Backend) jupyterOf(id string) (jupyter, error) {
	return jupyter{b.Transport(id), id}, checkID(id)
}

// do sends a request, decodes the answer into out, and is an *jupyterError for an answer other
// than 2xx. Both body and out may be nil.
func (j jupyter) do(ctx context.Context, method, path string, body, out any) error {
	ctx, cancel := context.WithTimeout(ctx, jupyterTimeout)
	defer cancel()
	u := url.URL{Scheme: "https", Host: jupyterHost, Path: path}
	req, err := newRequest(ctx, method, u.String(), body)
	if err != nil {
		return err
	}
	res, text, err := exchange(j.transport, req, maxJupyterAnswer)
	switch {
	case res != nil && res.StatusCode/100 != 2:
		return &jupyterError{j.id, res.StatusCode}
	case err != nil || out == nil:
		return err
	case json.Unmarshal(text, out) != nil:
		return errors.New("the VM's Jupyter server answers in an unknown form")
	}
	return nil
}

// jupyterError is an answer that is no success. Its text is not shown: it may be anything.
type jupyterError struct {
	id     string
	status int
}

func (e *jupyterError) Error() string {
	text := fmt.Sprintf("VM %q answered HTTP %d", e.id, e.status)
	if e.status == http.StatusNotFound || e.status == http.StatusUnauthorized {
		text += ", also to a fresh token: what was asked for is missing there, or Google's proxy does not reach the VM"
	}
	return text
}

// Touch implements vm.Backend. It lists the kernels. Whether that counts as use of the VM is
// unverified; Google's own extension sends requests to the proxy for this purpose.
func (b *Backend) Touch(ctx context.Context, id string) error {
	j, err := b.jupyterOf(id)
	if err == nil {
		err = j.do(ctx, http.MethodGet, "/api/kernels", nil, nil)
	}
	if err != nil {
		return fmt.Errorf("keep VM %q alive: %w", id, err)
	}
	return nil
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

// Upload implements vm.Backend. A chunk whose answer was lost is never sent again, because the
// server would append it twice: the whole file is. Whether it arrived unchanged is for its
// reader to check, as launch.py does.
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
	for range uploadTries {
		if err = j.uploadOnce(ctx, remotePath, content); err == nil {
			return nil
		}
		if refused, ok := errors.AsType[*jupyterError](err); ok && refused.status/100 == 4 || ctx.Err() != nil || gone(err) {
			break
		}
	}
	return fail(err)
}

func (j jupyter) uploadOnce(ctx context.Context, remotePath string, content []byte) error {
	for chunk := 1; ; chunk++ {
		piece := content[:min(len(content), chunkSize)]
		content = content[len(piece):]
		model := contentsFile{Type: "file", Format: "base64", Content: base64.StdEncoding.EncodeToString(piece), Chunk: chunk}
		switch {
		case len(content) > 0:
		case chunk == 1:
			model.Chunk = 0
		default:
			model.Chunk = -1
		}
		if err := j.do(ctx, http.MethodPut, "/api/contents"+remotePath, model, nil); err != nil || len(content) == 0 {
			return err
		}
	}
}

const (
	// maxMessage bounds one message of a kernel. A larger one ends the execution.
	maxMessage = 16 << 20
	// maxErrorText bounds the name and the text of an exception, in characters.
	maxErrorText = 1000
	// grace is how long a kernel's next message may take when its code has ended. The server
	// drops messages of a kernel that prints too fast, so the reply or the idle status may
	// never come.
	grace = 5 * time.Second
)

// kernelPattern matches a kernel's id, which becomes part of paths.
var kernelPattern = lazy.Regexp(`^[0-9a-fA-F-]{1,64}$`)

// Exec implements vm.Backend. Every call has a kernel of its own. Programs that it started
// detached run on; a kernel that can't be deleted now ends with the VM.
func (b *Backend) Exec(ctx context.Context, id, code string, timeout time.Duration) (string, error) {
	j, err := b.jupyterOf(id)
	if err != nil {
		return "", err
	}
	var kernel struct {
		ID string `json:"id"`
	}
	err = j.do(ctx, http.MethodPost, "/api/kernels", struct{}{}, &kernel)
	if err == nil && !kernelPattern().MatchString(kernel.ID) {
		err = errors.New("its id has an unknown form")
	}
	if err != nil {
		return "", fmt.Errorf("VM %q: start a kernel: %w", id, err)
	}
	kernelPath := "/api/kernels/" + kernel.ID
	over := fmt.Errorf("the code ran for more than %s and was interrupted: %w", timeout, context.DeadlineExceeded)
	running, cancel := context.WithTimeoutCause(ctx, timeout, over)
	defer cancel()
	e := execution{code: code, session: uuid.NewString(), id: uuid.NewString(), output: bounded.Tail{Max: vm.MaxOutput}}
	err = j.execute(running, kernelPath, &e)
	after, cancelAfter := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancelAfter()
	if err != nil && running.Err() != nil {
		err = context.Cause(running)
		_ = j.do(after, http.MethodPost, kernelPath+"/interrupt", nil, nil) // a KeyboardInterrupt, before the kernel is deleted
	}
	_ = j.do(after, http.MethodDelete, kernelPath, nil, nil)
	switch {
	case err != nil:
		err = fmt.Errorf("run code on VM %q: %w", id, err)
	case e.raised != nil:
		err = e.raised
	}
	return strings.ToValidUTF8(e.output.String(), ""), err // from a whole character on
}

var errKernelDied = errors.New("the kernel on the VM died while the code ran")

// execute sends the code once and reads messages until it has ended. A broken connection is not
// made again: what the relay runs on a VM can be repeated, with the start of which it is a part.
func (j jupyter) execute(ctx context.Context, kernelPath string, e *execution) error {
	c, err := j.dial(ctx, kernelPath, e.session)
	if err != nil {
		return fmt.Errorf("connect to the kernel: %w", err)
	}
	defer c.CloseNow()
	if err = c.Write(ctx, websocket.MessageText, e.request()); err == nil {
		err = e.follow(ctx, c)
	}
	if err != nil && !errors.Is(err, errKernelDied) {
		err = fmt.Errorf("the connection to the kernel broke, and the code may have run: %w", err)
	}
	return err
}

// dial opens the kernel's channels. It sends no Origin: the proxy answers foreign ones with 404.
func (j jupyter) dial(ctx context.Context, kernelPath, session string) (*websocket.Conn, error) {
	c, res, err := websocket.Dial(ctx, "wss://"+jupyterHost+kernelPath+"/channels?session_id="+session, &websocket.DialOptions{HTTPClient: &http.Client{
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

// message is a message of Jupyter's protocol, in the JSON form of its WebSockets.
type message struct {
	Header   header     `json:"header"`
	Parent   header     `json:"parent_header"`
	Metadata struct{}   `json:"metadata"`
	Content  content    `json:"content"`
	Channel  string     `json:"channel"`
	Buffers  []struct{} `json:"buffers"`
}

type header struct {
	ID       string `json:"msg_id,omitempty"`
	Type     string `json:"msg_type,omitempty"`
	Session  string `json:"session,omitempty"`
	Username string `json:"username"`
	Date     string `json:"date,omitempty"`
	Version  string `json:"version,omitempty"`
}

// content has what an execute_request says, which leaves no trace in the kernel's history, and
// what is read of the kernel's messages.
type content struct {
	Code    string `json:"code"`
	Silent  bool   `json:"silent"`
	History bool   `json:"store_history"`
	Stdin   bool   `json:"allow_stdin"`

	Text  string `json:"text,omitempty"`            // of stream
	State string `json:"execution_state,omitempty"` // of status
	Name  string `json:"ename,omitempty"`           // of error
	Value string `json:"evalue,omitempty"`
}

// execution is one execute_request and what it produced.
type execution struct {
	code, session, id string

	output        bounded.Tail
	raised        *vm.ExecError
	replied, idle bool // both have come when it has ended, over two sockets, in any order
}

func (e *execution) request() []byte {
	text, _ := json.Marshal(message{ // cannot fail
		Header:  header{ID: e.id, Type: "execute_request", Session: e.session, Date: time.Now().UTC().Format(time.RFC3339Nano), Version: "5.3"},
		Content: content{Code: e.code}, Channel: "shell", Buffers: []struct{}{},
	})
	return text
}

// follow reads messages until the code has ended.
func (e *execution) follow(ctx context.Context, c *websocket.Conn) error {
	for !e.replied || !e.idle {
		wait := time.Duration(math.MaxInt64) // until ctx ends
		if e.replied || e.idle {
			wait = grace
		}
		reading, cancel := context.WithTimeout(ctx, wait)
		kind, frame, err := c.Read(reading)
		late := reading.Err() != nil && ctx.Err() == nil
		cancel()
		switch {
		case late:
			return nil
		case err == nil && kind == websocket.MessageText: // others have buffers, such as a widget's
			err = e.receive(frame)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// receive reads one message. Messages of unknown form, and those about other requests, are
// ignored, except that the kernel died.
func (e *execution) receive(frame []byte) error {
	var m message
	if json.Unmarshal(frame, &m) != nil {
		return nil
	}
	state := m.Content.State
	if m.Header.Type == "status" && (state == "restarting" || state == "autorestarting" || state == "dead") {
		return errKernelDied
	}
	if m.Parent.ID != e.id {
		return nil
	}
	switch m.Header.Type {
	case "stream":
		_, _ = io.WriteString(&e.output, m.Content.Text)
	case "error":
		e.raised = &vm.ExecError{Name: plain.Clip(m.Content.Name, maxErrorText), Value: plain.Clip(m.Content.Value, maxErrorText)}
	case "execute_reply":
		e.replied = true
	case "status":
		e.idle = e.idle || state == "idle"
	}
	return nil
}
