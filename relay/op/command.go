package op

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"time"

	"colabrelay/relay/bridge"
	"colabrelay/relay/nbrun"
	"colabrelay/relay/plain"
	"colabrelay/relay/progress"
	"colabrelay/relay/render"
	"colabrelay/relay/runlist"
	"colabrelay/relay/runtimes"
	"colabrelay/relay/terminal"
	"colabrelay/relay/transfer"
	"colabrelay/relay/vm"
	"colabrelay/shared/contract"
)

// Command describes an operation for the command line. Of its arguments a person gives those with
// the tag arg, by their position, and flag.
type Command struct {
	Name           string // "ls", "vm list"
	Group          string // of the list of commands
	Short          string
	Long, Examples string // of the first operation of that name
	Setting        string // that has a flag of its own, such as CHECKPOINT_DIR
	Confirm        bool   // call.confirm asks the person, or the flag --yes does
}

// Argument is what a person gives an operation: a pflag.Value in the struct of its arguments.
type Argument struct {
	Name     string // of a flag, or of a position: PATH
	Short    string // letter of a flag; empty for none
	Usage    string
	Position bool
	Optional bool
	Complete string // what a shell offers: "vms" for the names of VMs, "runs" for ids; empty for nothing
	Choices  []string

	of    argument
	field reflect.Value
}

func (a *Argument) String() string { return fmt.Sprint(a.field) }

// Type is one of pflag's.
func (a *Argument) Type() string { return a.field.Kind().String() }

// Set reads what a person typed.
func (a *Argument) Set(text string) error {
	if fault := a.of.set(a.field, encode(text), true); fault != "" {
		if a.of.choices != nil {
			return errors.New("use " + strings.Join(a.of.choices, " or "))
		}
		return errors.New(strings.TrimPrefix(fault, strconv.Quote(a.of.name)+" "))
	}
	return nil
}

// Arguments returns a new struct of arguments and what a person gives of it, positions first.
func (o Operation) Arguments() (args any, all []*Argument) {
	value := reflect.New(o.args)
	var flags []*Argument
	for _, of := range fieldsOf(o.args) {
		a := &Argument{Usage: strings.ReplaceAll(of.usage, "'", "`"), Optional: of.def != nil, Complete: of.complete, Choices: of.choices, of: of, field: value.Elem().FieldByIndex(of.index)}
		if of.def != nil {
			of.set(a.field, nil, false)
		}
		switch {
		case of.arg != "":
			a.Name, a.Position = strings.Trim(of.arg, "[]"), true
			a.Optional = a.Name != of.arg
			all = append(all, a)
		case of.flag != "":
			a.Name, a.Short, _ = strings.Cut(of.flag, ",")
			flags = append(flags, a)
		}
	}
	return value.Interface(), append(all, flags...)
}

// Person is who gives a command, and what the command has for it.
type Person struct {
	Config  // of which commands use what the settings say, and Resolve if the operation is local
	Streams terminal.Streams
	Runtime runtimes.Runtime // a VM that answers, unless the operation is local
	// Runs returns the runs of a runtime, of all if it is empty: those in this computer's history, and
	// those of the VMs that answer.
	Runs func(ctx context.Context, runtime string) ([]runlist.Entry, error)
	// Ask shows the prompt of a run and returns the person's line.
	Ask func(ctx context.Context, executionID string, prompt contract.Event) (string, error)
	// Confirm asks, unless the person has confirmed already.
	Confirm func(question string) bool
	// VMs opens what starts VMs. executor is the file of the executor for them; empty for that of
	// the release.
	VMs func(executor string) *vm.Manager
	// Notebook runs a notebook to its end and shows its progress.
	Notebook func(ctx context.Context, run *nbrun.Run) (nbrun.Outcome, error)
	// Bridge opens what starts an executor through Colab's page, which connects to PagePort.
	Bridge   func() *bridge.Bridge
	PagePort int
	// Transfer shows the progress of what move transfers.
	Transfer func(name string, move func(report func(transfer.Progress)) (transfer.Result, error)) (transfer.Result, error)
}

// ArgumentError is an error in an argument of an operation.
type ArgumentError struct {
	name, flag string // as a model knows it, and as a person does
	err        error
}

func (e *ArgumentError) Error() string {
	if e.flag == "" {
		return e.err.Error()
	}
	if strings.ToUpper(e.flag) == e.flag { // a position
		return e.flag + ": " + e.err.Error()
	}
	return "--" + e.flag + ": " + e.err.Error()
}

// either returns the text that the reader of the call's answer understands.
func (c *call) either(model, person string) string {
	if c.person != nil {
		return person
	}
	return model
}

// step tells what a long operation does now.
func (c *call) step(what string) {
	if c.person == nil {
		c.progress.show(what)
		return
	}
	fmt.Fprintln(c.person.Streams.Err, plain.Line(what)+" ...")
}

// errNotConfirmed is the error of an operation that the person did not confirm.
var errNotConfirmed = errors.New("not confirmed: nothing was changed")

// confirm asks a person, before something is lost. Hosts ask by themselves.
func (c *call) confirm(format string, args ...any) error {
	if c.person == nil || c.person.Confirm(fmt.Sprintf(format, args...)) {
		return nil
	}
	return errNotConfirmed
}

// Answer is what an operation answers a person.
type Answer struct {
	common any
	payload
	warnings []string
	streams  terminal.Streams
}

// personHold is how long a person's command may wait.
const personHold = 30 * 24 * time.Hour

// Do does the operation. args is of Arguments. The answer of one that failed has notes at most.
func (o Operation) Do(ctx context.Context, by Person, args any) (Answer, error) {
	by.TextLimit = render.DefaultTextLimit
	c := &call{
		Relay:  &Relay{cfg: by.Config, kernels: lastKernels{stored: by.LastSeen}},
		target: by.Runtime, started: time.Now(), hold: personHold, person: &by,
	}
	c.args = reflect.ValueOf(args).Elem().Interface().(targeted)
	got, err := o.do(ctx, c, c.args)
	return Answer{struct {
		Runtime string `json:"runtime,omitempty"`
	}{c.target.Name}, got, c.warnings, by.Streams}, err
}

// Print writes the answer for a person.
func (a Answer) Print() error {
	w := words{person: &a.streams}
	w.notes(a.warnings)
	if a.payload != nil {
		a.payload.text(&w)
	}
	return w.print()
}

// PrintNotes prints what Print prints on stderr.
func (a Answer) PrintNotes() {
	a.streams.Out = io.Discard
	_ = a.Print() // writes nothing else
}

// MarshalJSON returns the fields that a tool's answer has too.
func (a Answer) MarshalJSON() ([]byte, error) { return merge(a.common, a.payload) }

// print writes the words for a person: lines, then blocks, with headings if there are several.
func (w *words) print() error {
	if _, err := io.WriteString(w.person.Out, plain.Document(w.String())); err != nil {
		return err
	}
	for _, b := range w.blocks {
		if len(w.blocks) > 1 && b.heading != "" {
			fmt.Fprintf(w.person.Out, "\n%s:\n", plain.Line(b.heading))
		}
		if err := b.print(w.person.Out); err != nil {
			return err
		}
	}
	return nil
}

func (b block) print(out io.Writer) error {
	if b.table != nil {
		return b.table.Print(out)
	}
	_, err := io.WriteString(out, ensureLine(plain.Document(b.text)))
	return err
}

// either returns the text that its reader understands: models know tools, people know commands.
func (w *words) either(model, person string) string {
	if w.person != nil {
		return person
	}
	return model
}

// note tells something beside the answer.
func (w *words) note(format string, args ...any) { w.notes([]string{fmt.Sprintf(format, args...)}) }

// table adds a table: columns for a person, a block of lines for a model.
func (w *words) table(heading string, t *terminal.Table) {
	if w.person == nil {
		w.quote(heading, t.Text())
		return
	}
	w.blocks = append(w.blocks, block{table: t})
}

// bytes returns a size of something, exact for a model.
func (w *words) bytes(n int64) string {
	return w.either(strconv.FormatInt(n, 10), progress.Bytes(n))
}

// when returns a time: with its zone for a model, in that of this computer for a person.
func (w *words) when(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return w.either(t.UTC().Format(time.RFC3339), t.Local().Format("2006-01-02 15:04"))
}
