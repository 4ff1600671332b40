package remoterun

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"colabrelay/relay/client"
	"colabrelay/relay/output"
	"colabrelay/relay/plain"
	"colabrelay/relay/render"
	"colabrelay/relay/runlist"
	"colabrelay/relay/terminal"
	"colabrelay/relay/terminal/inline"
	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/lazy"
	"colabrelay/shared/widgets"
)

// blobs returns what reads the large payloads of an execution.
type blobs func(executionID string) func(ctx context.Context, blob contract.Blob, w io.Writer) error

// printer prints the events of a run. It writes the code's output to a file or pipe
// unchanged, as if the code ran on this computer, and filters it for a terminal. Tracebacks
// have colours only where stderr is a terminal that shows them, and not with NO_COLOR.
type printer struct {
	blobs      blobs
	std        terminal.Streams
	out, err   *plain.Terminal  // filters; nil for a stream that is not a terminal
	pictureDir string           // pictures are saved below it
	colours    terminal.Colours // of stderr
	openLine   bool             // the last character printed is not a line break
	prompt     *int64           // offset of the last input request; nil before the first
	password   bool             // it asks for a password
	shownAs    inline.Protocol
	shown      int       // pictures
	widgets    []*widget // that the run displayed
	inView     bool      // the last line is that of the newest widget, and changes
	noInput    bool      // noteNoInput has said so
	asked      bool      // the last event was an input request that nobody here has answered yet
	skipped    *skipped  // lines that are left out; nil for none
	broken     error     // of a write to stdout; after it nothing more is printed
	stdin      *bufio.Reader
}

func newPrinter(from blobs, console Console) *printer {
	return &printer{
		blobs: from, shownAs: console.Pictures, std: console.Streams, out: filterFor(console.Out), err: filterFor(console.Err),
		pictureDir: console.PictureDir, colours: console.Colours, stdin: bufio.NewReader(console.In),
	}
}

func filterFor(w io.Writer) *plain.Terminal {
	if terminal.Is(w) {
		return &plain.Terminal{}
	}
	return nil
}

// event prints one event of the execution id.
func (p *printer) event(ctx context.Context, id string, ev contract.Event) {
	if p.asked { // somebody else has answered, or it was long ago
		p.endLine(p.std.Err)
	}
	p.asked = ev.Type == contract.EventInputRequest
	if ev.Cut != "" {
		p.note("part of the output at offset %d is missing: %s", ev.Offset, plain.Line(ev.Cut))
	}
	switch ev.Type {
	case contract.EventWidgetView:
		p.view(ev)
		return
	case contract.EventWidgetState:
		return
	}
	p.leaveView()
	switch ev.Type {
	case contract.EventStream:
		w := p.std.Out
		if ev.Name == contract.Stderr {
			w = p.std.Err
		}
		p.write(w, ev.Text)
	case contract.EventExecuteResult, contract.EventDisplayData, contract.EventUpdateDisplayData:
		p.display(ctx, id, ev)
	case contract.EventError:
		if len(ev.Traceback) == 0 { // of sys.exit with a number
			return
		}
		if raw, ok := ev.Data["text/plain"]; ok && p.text(ctx, id, p.std.Err, raw) == nil {
			return
		}
		text := strings.Join(ev.Traceback, "\n")
		if !p.colours.On() { // IPython has put them in, not the code
			text = plain.Text(text)
		}
		p.line(text)
	case contract.EventInputRequest:
		p.prompt, p.password = &ev.Offset, ev.Password
		p.write(p.std.Err, promptText(ev))
	case contract.EventGap:
		if ev.Cut == "" { // which says why
			p.note("output is missing here: %s", output.Missing(&ev))
		}
	}
}

// promptText returns what an input request shows.
func promptText(ev contract.Event) string {
	if ev.Prompt == "" && ev.Password { // ipykernel's getpass() has no prompt of its own
		return "Password: "
	}
	return ev.Prompt
}

func (p *printer) write(w io.Writer, text string) {
	if text == "" || p.broken != nil {
		return
	}
	filter := p.out
	if w == p.std.Err {
		filter = p.err
	}
	if filter != nil {
		text = filter.Filter(text)
	}
	if _, err := io.WriteString(w, text); err != nil && w == p.std.Out {
		p.broken = err
	}
	p.openLine = text != "" && !strings.HasSuffix(text, "\n") || text == "" && p.openLine
}

// note prints a message of the relay's own.
func (p *printer) note(format string, args ...any) {
	p.line("colab-relay: " + fmt.Sprintf(format, args...))
}

// line prints a separate line to stderr.
func (p *printer) line(text string) {
	p.close()
	p.write(p.std.Err, strings.TrimSuffix(text, "\n")+"\n")
}

func (p *printer) endLine(w io.Writer) {
	if p.openLine {
		p.write(w, "\n")
	}
}

// resetColours ends the colours that the code has set on a terminal.
func (p *printer) resetColours() {
	if p.out != nil {
		_, _ = io.WriteString(p.std.Out, p.out.Reset())
	}
	if p.err != nil {
		_, _ = io.WriteString(p.std.Err, p.err.Reset())
	}
}

// widget is a display of a widget.
type widget struct {
	displayID string
	text      string // as it is now
	printed   string
}

// maxWidgets bounds the widgets that are kept; beyond it, the oldest is printed as it is.
const maxWidgets = 200

// view takes in the text of a widget. A terminal shows a line of the newest widget as it changes. All
// that was not shown is printed at the end.
func (p *printer) view(ev contract.Event) {
	var text string
	_ = json.Unmarshal(ev.Data["text/plain"], &text)
	at := slices.IndexFunc(p.widgets, func(w *widget) bool { return w.displayID == ev.DisplayID })
	if at < 0 {
		p.leaveView()
		if len(p.widgets) == maxWidgets {
			p.widgets[0].print(p)
			p.widgets = p.widgets[1:]
		}
		at = len(p.widgets)
		p.widgets = append(p.widgets, &widget{displayID: ev.DisplayID})
	}
	w := p.widgets[at]
	w.text = strings.TrimRight(render.Plain(text), "\n")
	if p.out == nil || at < len(p.widgets)-1 || strings.Contains(w.text, "\n") {
		return
	}
	if !p.inView {
		p.endLine(p.std.Out)
	}
	p.write(p.std.Out, "\r\x1b[K"+w.text)
	p.inView, w.printed = true, w.text
}

// leaveView ends the line of a widget.
func (p *printer) leaveView() {
	if p.inView {
		p.endLine(p.std.Out)
		p.inView = false
	}
}

// print prints the widget's text, unless it is there.
func (w *widget) print(p *printer) {
	if w.text != w.printed {
		p.endLine(p.std.Out)
		p.write(p.std.Out, w.text+"\n")
		w.printed = w.text
	}
}

// finish prints the widgets whose last text was not shown, and closes.
func (p *printer) finish() {
	p.leaveView()
	for _, w := range p.widgets {
		w.print(p)
	}
	p.close()
}

// close leaves a terminal without colours and with the cursor at the beginning of a line.
func (p *printer) close() {
	p.resetColours()
	p.endLine(p.std.Err)
}

// display saves the picture of an object, or else prints the object's text. That of a widget follows.
func (p *printer) display(ctx context.Context, id string, ev contract.Event) {
	if widgets.View(ev.Data) != "" {
		p.view(ev)
		return
	}
	if at := slices.IndexFunc(output.Pictures, func(mime string) bool { return ev.Data[mime] != nil }); at >= 0 {
		mime := output.Pictures[at]
		if p.skipped != nil {
			if p.endLine(p.std.Err); p.skipped.left > 0 {
				p.note("a picture in a line that is left out")
				return
			}
		}
		path, err := p.savePicture(ctx, id, mime, ev)
		if err == nil {
			p.show(ctx, path, mime)
			p.note("saved a picture as %s", plain.Line(path))
			return
		}
		p.note("a picture could not be saved: %s", plain.Line(err.Error()))
	}
	if raw, ok := ev.Data["text/plain"]; ok {
		_ = p.text(ctx, id, p.std.Out, raw)
	}
}

// text prints a text on lines of its own.
func (p *printer) text(ctx context.Context, id string, w io.Writer, raw json.RawMessage) error {
	p.endLine(w)
	defer p.endLine(w)
	return output.WritePayload(ctx, "text/plain", raw, p.blobs(id), writerFunc(func(b []byte) { p.write(w, string(b)) }))
}

type writerFunc func(b []byte)

func (w writerFunc) Write(b []byte) (int, error) {
	w(b)
	return len(b), nil
}

// Bounds of pictures shown on a terminal.
const (
	shownEdge     = 800 // pixels of the long edge
	maxShown      = 100 // of one run
	maxShownBytes = 32 << 20
)

// show shows a saved picture on the terminal, redrawn from its pixels. A picture that cannot
// be shown, such as an SVG, is only saved.
func (p *printer) show(ctx context.Context, path, mime string) {
	if p.shown++; p.shownAs == inline.None || p.out == nil || p.shown > maxShown || mime != "image/png" && mime != "image/jpeg" {
		return
	}
	original, err := bounded.Open(path)
	if err != nil {
		return
	}
	defer original.Close()
	if info, err := original.Stat(); err != nil || info.Size() > maxShownBytes {
		return
	}
	drawn, err := render.Redraw(ctx, original, shownEdge)
	if err != nil {
		return
	}
	p.endLine(p.std.Out)
	if _, err := io.WriteString(p.std.Out, p.out.Reset()+p.shownAs.Sequence(drawn)); err != nil {
		p.broken = err
	}
	p.openLine = false
}

// savePicture saves a picture of the execution id, and returns the file's path.
func (p *printer) savePicture(ctx context.Context, id, mime string, ev contract.Event) (path string, err error) {
	raw := ev.Data[mime]
	return render.SavePayload(render.Folder(p.pictureDir, "", id), ev.Offset, mime, raw, func(w io.Writer) error {
		return output.WritePayload(ctx, mime, raw, p.blobs(id), w)
	})
}

// Cells prints the output of a notebook's cells, which somebody else runs, and passes input on.
type Cells struct{ r *run }

// NewCells returns what prints the output of cells on vm. A caller must close it.
func NewCells(vm VM, console Console) *Cells {
	return &Cells{&run{VM: vm, instance: vm.Client.InstanceID(), out: newPrinter(vm.Client.Blobs, console)}}
}

// Print prints events of an execution, but no prompts: those are for Answer. It warns once if
// the kernel is a new one.
func (c *Cells) Print(ctx context.Context, executionID, kernelID string, events []contract.Event) {
	if kernelID != c.r.exec.KernelID {
		c.r.checkKernel(kernelID)
		c.r.exec.KernelID = kernelID
	}
	for _, ev := range events {
		if ev.Type != contract.EventInputRequest {
			c.r.out.event(ctx, executionID, ev)
		}
	}
}

// Broken returns the error of a write to stdout; after it nothing more is printed.
func (c *Cells) Broken() error { return c.r.out.broken }

// Note prints a message of the relay's own on a line of its own.
func (c *Cells) Note(format string, args ...any) { c.r.out.note(format, args...) }

// Close leaves a terminal without colours and with the cursor at the beginning of a line.
func (c *Cells) Close() { c.r.out.finish() }

// Answer shows the prompt of an execution that waits for input, and passes a line from the
// person or from stdin on, or that stdin has none.
func (c *Cells) Answer(ctx context.Context, executionID string, prompt contract.Event) error {
	c.r.answer.ExecutionID = executionID
	c.r.exec.Status = contract.StatusWaitingForInput
	c.r.out.event(ctx, executionID, prompt)
	return c.r.input(ctx)
}

// CellError returns the error of a cell that raised an exception whose traceback was printed: an
// ExitCode of sys.exit, nil for sys.exit(0), and otherwise ErrPrinted.
func CellError(ename, evalue string) error {
	return exception(&contract.ExecutionError{EName: ename, EValue: plain.Line(evalue)})
}

// leftRunning is the error of a run that was left before its end. The cause may be a lost
// connection, which is then a *client.Error.
type leftRunning struct {
	id    string
	cause error
}

func (e *leftRunning) Error() string {
	return fmt.Sprintf("the run %s may still be running on the VM: %v; to come back: colab-relay attach %s", e.id, e.cause, e.id)
}

func (e *leftRunning) Unwrap() []error { return []error{runlist.ErrStillRunning, e.cause} }

func (r *run) leave(cause error) error { return &leftRunning{r.answer.ExecutionID, cause} }

// lost adds to the loss of the connection how to come back to the run.
func (r *run) lost(ctx context.Context, err error) error {
	if _, broken := errors.AsType[*client.Error](err); !broken || ctx.Err() != nil {
		return err
	}
	return r.leave(err)
}

// end interrupts the run and prints the rest of its output, for at most endWait or until
// a second signal.
func (r *run) end(ctx context.Context) error {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWait)
	defer cancel()
	waiting, stop := signal.NotifyContext(limited, os.Interrupt, syscall.SIGTERM)
	defer stop()
	if r.out.broken == nil {
		if r.exec.Status == contract.StatusQueued {
			r.out.note("cancelling the run, which was queued; Ctrl-C again leaves it on the VM")
		} else {
			r.out.note("interrupting the run on the VM; Ctrl-C again leaves it running")
		}
	}
	err := r.interrupt(waiting)
	interrupted := err == nil
	if err != nil {
		err = fmt.Errorf("interrupt it: %w", err)
	}
	asked := r.out.prompt
	for err == nil && !r.exec.End {
		if err = r.read(waiting); err == nil && r.out.prompt != asked {
			// Nobody reads an answer here any more: it would go to the shell.
			return r.leave(errors.New("it asks for input again"))
		}
	}
	switch {
	case err == nil, contract.CodeOf(err) == contract.CodeNewInstance:
		return err
	case limited.Err() != nil && interrupted:
		return r.leave(fmt.Errorf("it did not end within %s of the interrupt", endWait))
	case waiting.Err() != nil && limited.Err() == nil:
		return r.leave(errors.New("stopped waiting"))
	}
	return r.leave(err)
}

// interrupt interrupts the run. A run that has already finished is no error.
func (r *run) interrupt(ctx context.Context) error {
	_, err := r.Client.Interrupt(ctx, r.answer.ExecutionID)
	if contract.CodeOf(err) == contract.CodeConflict { // it had ended
		return nil
	}
	return r.explain(err)
}

// checkKernel warns if the kernel is not the one that people on this computer last used,
// and records it. id is empty as long as the run has no kernel.
func (r *run) checkKernel(id string) {
	if id == "" || r.LastSeen.Load == nil {
		return
	}
	before := r.LastSeen.Load(r.Runtime)
	now := before.Updated(r.instance, id)
	// Recorded even if unchanged: an agent may have recorded another kernel as the newest.
	r.LastSeen.Save(r.Runtime, now)
	if loss := before.Loss(now); loss != "" {
		r.out.note("this is %s", loss)
	}
}

// explain replaces an error that means that a new VM has taken over the address.
func (r *run) explain(err error) error {
	code := contract.CodeOf(err)
	unknown := code == contract.CodeNotFound && r.instance != "" && r.Client.InstanceID() != r.instance
	if !unknown && code != contract.CodeNewInstance {
		return err
	}
	return &contract.Error{
		Code:    contract.CodeNewInstance,
		Message: "a new VM has taken over this address; the code was not run again there, and the variables of the old VM are gone",
		Hint:    "run the setup code again, then this command",
	}
}

// ErrPrinted: the code raised an exception, and its traceback has been printed.
var ErrPrinted = errors.New("the code raised an exception")

// NoModuleError is an ErrPrinted of code that imported a module which the VM does not have.
type NoModuleError struct {
	Module string // with dots; outside text
}

func (e *NoModuleError) Error() string { return fmt.Sprintf("the VM has no module %q", e.Module) }

// Unwrap returns ErrPrinted.
func (e *NoModuleError) Unwrap() error { return ErrPrinted }

// noModule is what Python says of a module that it did not find.
var noModule = lazy.Regexp(`^No module named '([^']{1,200})'`)

// ExitCode is the outcome of code that called sys.exit with a number from 1 to 255.
type ExitCode int

func (c ExitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// ended returns the outcome of the run, and prints what its output does not show.
func (r *run) ended() error {
	r.out.noteReason(r.exec)
	return outcome(r.exec)
}

// noteReason says what the executor added to the status of a run that ended by itself, such as
// that a full disk cost output. The error of any other run has it.
func (p *printer) noteReason(e contract.Execution) {
	if (e.Status == contract.StatusSucceeded || e.Status == contract.StatusFailed) && e.Reason != "" {
		p.note("%s", plain.Line(e.Reason))
	}
}

// outcome returns the error of a run that did not succeed.
func outcome(e contract.Execution) error {
	switch {
	case e.Status == contract.StatusSucceeded:
		return nil
	case e.Status == contract.StatusFailed, e.Status == contract.StatusInterrupted && e.Error != nil && e.Error.EName == "SystemExit":
		return exception(e.Error) // also of code that was interrupted and then chose its exit code
	}
	return &endedError{e.Status, plain.Line(e.Reason)}
}

// endedError is the outcome of a run that ended badly, except for exceptions.
type endedError struct {
	status contract.Status
	reason string
}

func (e *endedError) Error() string {
	return strings.TrimSuffix(fmt.Sprintf("the run ended as %s: %s", e.status, e.reason), ": ")
}

// Outcome returns the status, from which package hint derives the next step.
func (e *endedError) Outcome() contract.Status { return e.status }

// exception returns the outcome of code that raised an exception. sys.exit gives the same
// exit code as if the code had run on this computer: a number counts modulo 256, and a text,
// which is the traceback, means 1.
func exception(e *contract.ExecutionError) error {
	if e != nil && e.EName == "ModuleNotFoundError" {
		if found := noModule().FindStringSubmatch(e.EValue); found != nil {
			return &NoModuleError{found[1]}
		}
	}
	if e == nil || e.EName != "SystemExit" || len(e.Traceback) > 0 {
		return ErrPrinted
	}
	switch e.EValue {
	case "", "None", "False":
		return nil
	case "True":
		return ExitCode(1)
	}
	code, err := strconv.ParseInt(e.EValue, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange): // Python cannot pass it on, and exits with 255
		return ExitCode(255)
	case err != nil:
		return ErrPrinted
	case code&0xff == 0:
		return nil
	}
	return ExitCode(code & 0xff)
}
