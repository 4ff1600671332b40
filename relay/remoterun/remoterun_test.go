package remoterun

import (
	"errors"
	"strings"
	"testing"

	"colabrelay/relay/client"
	"colabrelay/relay/terminal"
	"colabrelay/shared/auth"
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

func TestInputMayEndWithoutALineBreak(t *testing.T) {
	p := newPrinter(nil, Console{Streams: terminal.Streams{In: strings.NewReader("bob\r\neve")}})
	for _, want := range []string{"bob", "eve"} {
		if got, err := p.readInput(t.Context()); got != want || err != nil {
			t.Errorf("%q %v, want %q", got, err, want)
		}
	}
	if _, err := p.readInput(t.Context()); !errors.Is(err, ErrNoInput) {
		t.Errorf("at the end of stdin: %v", err)
	}
}
