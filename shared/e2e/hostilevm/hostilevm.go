// Package hostilevm is an executor that holds the right key and lies: its answers
// are signed as the contract has it, and their content attacks the relay that reads
// them. The package has one table of misbehaviours, Cases; shared/e2e/hostile serves
// each of them as a program.
//
// It is linked into no program of ours. Signing, checking and the serving of files are
// fakevm's. Start reading at Cases, then honest.go, which is what a case leaves true.
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

// Case is one misbehaviour.
type Case struct {
	Name  string
	About string // what it does, and what it is after
	// routes makes the answers that are lies, by route such as "GET /v1/probe"; whatever
	// is not among them is answered honestly. A VM has its own, so they may count.
	routes func(vm *fakevm.VM) routes
	// warp, where it is set, changes each answer as JSON, lies and truths alike.
	warp func(v any) any
}

// Cases are all misbehaviours. A new one is added here.
var Cases = slices.Concat(honestCases, nameCases, bombCases, textCases, stateCases)

// routes are answers by route, as http.ServeMux writes routes.
type routes map[string]func(q question) fakevm.Reply

// question is a request that is to be answered.
type question struct {
	*http.Request
	body []byte
}

// Find gives the case of that name.
func Find(name string) (Case, error) {
	for _, c := range Cases {
		if c.Name == name {
			return c, nil
		}
	}
	return Case{}, fmt.Errorf("there is no case %q", name)
}

// New makes a VM that misbehaves so; whoever calls it serves it.
func New(name string) (*fakevm.VM, error) {
	vm := fakevm.New()
	return vm, corrupt(vm, name)
}

// Start serves a VM that misbehaves so until the test ends.
func Start(t testing.TB, name string) *fakevm.VM {
	t.Helper()
	vm := fakevm.Start(t)
	if err := corrupt(vm, name); err != nil {
		t.Fatal(err)
	}
	return vm
}

// corrupt makes vm lie as the case of that name does.
func corrupt(vm *fakevm.VM, name string) error {
	c, err := Find(name)
	if err != nil {
		return err
	}
	answers := honest()
	if c.routes != nil {
		for route, answer := range c.routes(vm) {
			answers[route] = answer
		}
	}
	table := http.NewServeMux()
	for route := range answers {
		table.Handle(route, http.NotFoundHandler())
	}
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

// generic is v as encoding/json reads it without knowing its type.
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
