// Package hostilevm is a hostile executor with a valid key. Its answers are sealed
// correctly, but their content attacks the relay. The package has one table of attacks,
// Cases; shared/e2e/hostile serves each of them as a program.
//
// It must not be linked into either program. It uses fakevm for the protocol and for
// files. Start reading at Cases, then at honest.go, which answers all other requests.
package hostilevm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"

	"colabrelay/shared/e2e/fakevm"
)

// Case is one attack.
type Case struct {
	Name  string
	About string // what it does and what it aims at
	// routes returns the false answers by route, such as "GET /v1/probe". Other routes are
	// answered honestly. Each VM has its own map, so an answer may count requests.
	routes func(vm *fakevm.VM) routes
	// warp, if set, changes every answer, given as decoded JSON.
	warp func(v any) any
	// wire, if set, changes how answers are sent.
	wire fakevm.Wire
	// Slow says that a call of a tool usually takes as long as it may.
	Slow bool
}

// Cases are all attacks. Add new ones here.
var Cases = slices.Concat(honestCases, nameCases, bombCases, textCases, stateCases, wireCases, formCases, orderCases, fileCases, refusalCases, JobCases)

// routes are answers by route, in the syntax of http.ServeMux.
type routes map[string]func(q question) fakevm.Reply

// question is a request and its body.
type question struct {
	*http.Request
	body []byte
}

// Find returns the case with that name.
func Find(name string) (Case, error) {
	for _, c := range Cases {
		if c.Name == name {
			return c, nil
		}
	}
	return Case{}, fmt.Errorf("there is no case %q", name)
}

// New returns a VM for a case. It is not served yet.
func New(name string) (*fakevm.VM, error) {
	vm := fakevm.New()
	return vm, corrupt(vm, name)
}

// Start starts a VM for a case. It serves until the test ends.
func Start(t testing.TB, name string) *fakevm.VM {
	t.Helper()
	vm := fakevm.Start(t)
	if err := corrupt(vm, name); err != nil {
		t.Fatal(err)
	}
	return vm
}

// corrupt makes vm answer as the named case does.
func corrupt(vm *fakevm.VM, name string) error {
	c, err := Find(name)
	if err != nil {
		return err
	}
	answers, own := honest(vm), routes{}
	if c.routes != nil {
		own = c.routes(vm)
	}
	answers = with(answers, own)
	withRuns(vm, answers, own)
	table := http.NewServeMux()
	for route := range answers {
		table.Handle(route, http.NotFoundHandler())
	}
	vm.Wires(c.wire)
	vm.Lies(func(r *http.Request, body []byte) (fakevm.Reply, bool) {
		_, route := table.Handler(r)
		answer, ok := answers[route]
		if !ok {
			return fakevm.Reply{}, false // files and uploads, which fakevm knows
		}
		reply := answer(question{r, body})
		if _, raw := reply.Body.([]byte); c.warp != nil && !raw {
			reply.Body = c.warp(generic(reply.Body))
		}
		return reply, true
	})
	return nil
}

// generic returns v encoded as JSON and decoded without its type.
func generic(v any) any {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // the contract's own types
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var out any
	if err := d.Decode(&out); err != nil && err != io.EOF {
		panic(err)
	}
	return out
}
