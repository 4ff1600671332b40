package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/term"

	"colabrelay/relay/client"
	"colabrelay/relay/plain"
	"colabrelay/shared/contract"
)

// pictureKinds are the MIME types kept as files, best first.
var pictureKinds = []struct{ mime, ext string }{{"image/png", ".png"}, {"image/jpeg", ".jpg"}, {"image/gif", ".gif"}, {"image/svg+xml", ".svg"}}

// maxKept bounds the pictures of one run on the disk: one that goes on for hours may show
// more than an executor keeps at a time.
const maxKept = 2 << 30

// printer prints a run's events. What the code prints goes to a file or a pipe as it is,
// escapes too, as if it ran here; to a terminal as plain.Terminal lets it through.
type printer struct {
	std      streams
	out, err *plain.Terminal // nil for a stream that is no terminal
	saveDir  string          // pictures go below it
	kept     int64           // bytes of pictures so far
	openLine bool            // what was printed last ends within a line
	password bool
	stdin    *bufio.Reader
	broken   error // of a write to stdout: nobody reads, and nothing more is printed
}

func newPrinter(std streams, saveDir string) *printer {
	return &printer{std: std, out: terminal(std.out), err: terminal(std.err), saveDir: saveDir}
}

// terminal is what filters a stream to a terminal; nil for any other.
func terminal(w io.Writer) *plain.Terminal {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return &plain.Terminal{}
	}
	return nil
}

func (p *printer) event(ctx context.Context, c *client.Client, id string, ev contract.Event) {
	if ev.Cut != "" {
		p.line(p.std.err, fmt.Sprintf("relay: left out of the output at offset %d: %s", ev.Offset, plain.Line(ev.Cut)))
	}
	switch ev.Type {
	case contract.EventStream:
		w := p.std.out
		if ev.Name == contract.Stderr {
			w = p.std.err
		}
		p.write(w, ev.Text)
	case contract.EventExecuteResult, contract.EventDisplayData, contract.EventUpdateDisplayData:
		p.display(ctx, c, id, ev)
	case contract.EventError:
		text := strings.Join(ev.Traceback, "\n")
		if p.err == nil {
			text = plain.Text(text)
		}
		p.line(p.std.err, text)
	case contract.EventInputRequest:
		p.password = ev.Password
		p.write(p.std.err, ev.Prompt)
	case contract.EventGap:
		p.line(p.std.err, fmt.Sprintf("relay: %d bytes of output are missing here: the VM does not keep that much of one run", ev.Bytes))
	}
}

func (p *printer) write(w io.Writer, text string) {
	if text == "" || p.broken != nil {
		return
	}
	filter := p.out
	if w == p.std.err {
		filter = p.err
	}
	if filter != nil {
		text = filter.Filter(text)
	}
	if _, err := io.WriteString(w, text); err != nil && w == p.std.out {
		p.broken = err
	}
	p.openLine = text != "" && !strings.HasSuffix(text, "\n") || text == "" && p.openLine
}

// line writes a line of its own.
func (p *printer) line(w io.Writer, text string) {
	p.reset()
	if p.openLine {
		p.write(w, "\n")
	}
	p.write(w, strings.TrimSuffix(text, "\n")+"\n")
}

// reset ends the colours that the code has set on a terminal.
func (p *printer) reset() {
	if p.out != nil {
		_, _ = io.WriteString(p.std.out, p.out.Reset())
	}
	if p.err != nil {
		_, _ = io.WriteString(p.std.err, p.err.Reset())
	}
}

// close leaves the terminal without colours, its cursor at the beginning of a line.
func (p *printer) close() {
	p.reset()
	if p.openLine && p.broken == nil {
		fmt.Fprintln(p.std.err)
	}
}

// display prints an object's text, and keeps its picture as a file.
func (p *printer) display(ctx context.Context, c *client.Client, id string, ev contract.Event) {
	for _, kind := range pictureKinds {
		raw, ok := ev.Data[kind.mime]
		if !ok {
			continue
		}
		path, err := p.keep(ctx, c, id, picture{fmt.Sprintf("%d%s", ev.Offset, kind.ext), kind.ext == ".svg", raw})
		if err != nil {
			p.line(p.std.err, fmt.Sprintf("relay: a picture could not be kept: %s", plain.Line(err.Error())))
			break
		}
		p.line(p.std.err, "relay: picture in "+plain.Line(path))
		return
	}
	if raw, ok := ev.Data["text/plain"]; ok {
		if p.openLine {
			p.write(p.std.out, "\n")
		}
		_ = payload(ctx, c, id, raw, writing(func(b []byte) { p.write(p.std.out, string(b)) }))
		if p.openLine {
			p.write(p.std.out, "\n")
		}
	}
}

// writing is a function as a writer.
type writing func(b []byte)

func (w writing) Write(b []byte) (int, error) {
	w(b)
	return len(b), nil
}

// picture is one MIME payload.
type picture struct {
	name string
	text bool // not base64
	raw  json.RawMessage
}

// keep writes a picture below the folder for downloads, named by its run and offset.
func (p *printer) keep(ctx context.Context, c *client.Client, id string, pic picture) (path string, err error) {
	if !contract.RequestIDPattern.MatchString(id) || strings.Trim(id, ".") == "" { // it becomes a folder
		return "", fmt.Errorf("the run's id %.40q is no name", id)
	}
	var ref contract.BlobRef
	_ = json.Unmarshal(pic.raw, &ref) // what is no reference has no size here
	if p.kept += int64(len(pic.raw)) + max(ref.Blob.Bytes, 0); p.kept > maxKept {
		return "", fmt.Errorf("this run's pictures are over %d GiB", maxKept>>30)
	}
	dir := filepath.Join(p.saveDir, "executions", id)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	var inline string
	path = filepath.Join(dir, pic.name)
	if json.Unmarshal(pic.raw, &inline) == nil {
		content := []byte(inline)
		if !pic.text {
			if content, err = base64.StdEncoding.DecodeString(strings.ReplaceAll(inline, "\n", "")); err != nil {
				return "", err
			}
		}
		return path, os.WriteFile(path, content, 0o600)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	err = payload(ctx, c, id, pic.raw, f)
	if closed := f.Close(); err == nil {
		err = closed
	}
	return path, err
}

// payload writes a text, or the bytes of a blob.
func payload(ctx context.Context, c *client.Client, id string, raw json.RawMessage, w io.Writer) error {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		_, err := io.WriteString(w, text)
		return err
	}
	var ref contract.BlobRef
	if err := json.Unmarshal(raw, &ref); err != nil {
		return err
	}
	return c.Blob(ctx, id, ref.Blob, w)
}

// ask reads a line from the person, unseen where it is a password. A read that ctx
// ends is left behind; the program ends soon after.
func (p *printer) ask(ctx context.Context, stdin io.Reader) (string, error) {
	type typed struct {
		text string
		err  error
	}
	got := make(chan typed, 1)
	go func() {
		text, err := p.read(stdin)
		got <- typed{text, err}
	}()
	select {
	case t := <-got:
		p.openLine = false
		return t.text, t.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

func (p *printer) read(stdin io.Reader) (string, error) {
	if f, ok := stdin.(*os.File); ok && p.password && term.IsTerminal(int(f.Fd())) {
		b, err := term.ReadPassword(int(f.Fd()))
		fmt.Fprintln(p.std.err)
		return string(b), err
	}
	if p.stdin == nil {
		p.stdin = bufio.NewReader(stdin)
	}
	text, err := p.stdin.ReadString('\n')
	switch {
	case err == io.EOF && text == "":
		err = errNoInput
	case err == io.EOF:
		err = nil
	}
	return strings.TrimRight(text, "\r\n"), err
}
