package remoterun

import (
	"context"
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"testing"

	"colabrelay/relay/client"
	"colabrelay/relay/terminal"
	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
)

const secret = "a secret of relay/remoterun's tests, 32 bytes or more"

// pool has the executors that the tests share.
var pool = harness.Pool{Secret: secret}

func TestMain(m *testing.M) { pool.Main(m) }

// startVM returns the address of an executor that the test has for itself.
func startVM(t *testing.T) string {
	t.Helper()
	return pool.Borrow(t, stacks.Old(t).Python).Ready.LocalURL
}

// newClient returns a client of an executor.
func newClient(t *testing.T, url string) *client.Client {
	t.Helper()
	s, err := auth.NewSecret(secret)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Config{BaseURL: url, Secret: s})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// console is a person who types nothing.
type console struct{ out, err harness.Output }

func (c *console) console(t *testing.T) Console {
	return Console{Streams: terminal.Streams{In: strings.NewReader(""), Out: &c.out, Err: &c.err}, PictureDir: t.TempDir()}
}

// A file or pipe gets the last text of each widget, once, and nothing of a closed one.
func TestWidgetsArePrintedAsTheyAreAtTheEnd(t *testing.T) {
	var c console
	p := newPrinter(func(string) func(context.Context, contract.Blob, io.Writer) error { return nil }, c.console(t))
	show := func(id, text string) {
		p.event(t.Context(), "run", contract.Event{Type: contract.EventWidgetView, DisplayID: id, Data: map[string]json.RawMessage{"text/plain": json.RawMessage(strconv.Quote(text))}})
	}
	show("a", "0%")
	show("b", "closed later")
	p.event(t.Context(), "run", contract.Event{Type: contract.EventStream, Name: contract.Stdout, Text: "printed"})
	show("b", "")
	show("a", "50%\r100%")
	p.finish()
	if got, want := c.out.String(), "printed\n100%\n"; got != want {
		t.Errorf("printed %q, want %q", got, want)
	}
}
