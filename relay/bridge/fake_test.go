package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	bootstrap "colabrelay/colab-bootstrap"
	"colabrelay/relay/page"
	"colabrelay/relay/pairing"
	"colabrelay/shared/auth"
	"colabrelay/shared/enrollment"
)

// fakeVM does in Go what the cells do on a VM.
type fakeVM struct {
	instance string
	url      string
	tunnel   string // what the start cell prepares; empty: what it is asked for
	starts   int
	change   func(source string) string // what runs in place of a cell's source; nil: the source

	responses map[string]*enrollment.Response // by job
	answers   map[string]enrollment.Answer
	grants    []enrollment.Grant
	jobs      []string
}

func newVM() *fakeVM {
	return &fakeVM{instance: "instance-1", url: "https://vm.example", responses: map[string]*enrollment.Response{}, answers: map[string]enrollment.Answer{}}
}

var (
	jobLine   = regexp.MustCompile(`JOB = "([0-9a-f]{32})"`)
	keyLine   = regexp.MustCompile(`RELAY_KEY = "([^"]+)"`)
	tunnelIs  = regexp.MustCompile(`TUNNEL = "([a-z]+)"`)
	grantLine = regexp.MustCompile(`GRANT = "([^"]+)"`)
	printed   = regexp.MustCompile(`print\('(.*)'\)`)
)

// run returns what a cell prints.
func (v *fakeVM) run(source string) string {
	report := func(job string, what map[string]any) string {
		what["job"] = job
		text, err := json.Marshal(what)
		if err != nil {
			panic(err)
		}
		return "colab-relay-enrollment: " + string(text) + "\n"
	}
	if v.change != nil {
		source = v.change(source)
	}
	title, _, _ := strings.Cut(source, "\n")
	switch {
	case strings.Contains(title, "waits for the VM"):
		instances := ""
		if v.starts > 0 {
			instances = v.instance
		}
		return printed.FindStringSubmatch(source)[1] + "\ncolab-relay-instances: " + instances + "\n"
	case strings.Contains(title, "starts the executor"):
		job := jobLine.FindStringSubmatch(source)[1]
		if v.responses[job] == nil {
			response, err := enrollment.NewResponse(job, keyLine.FindStringSubmatch(source)[1])
			if err != nil {
				return report(job, map[string]any{"error": err.Error()})
			}
			v.responses[job], v.jobs = response, append(v.jobs, job)
			v.starts++
		}
		tunnel := v.tunnel
		if tunnel == "" {
			tunnel = tunnelIs.FindStringSubmatch(source)[1]
		}
		return report(job, map[string]any{"key": v.responses[job].PublicKey(), "tunnel": tunnel})
	case strings.Contains(title, "pairs the executor"):
		job := jobLine.FindStringSubmatch(source)[1]
		if _, have := v.answers[job]; !have {
			if v.responses[job] == nil {
				return report(job, map[string]any{"error": "the executor that waited for this cell has ended: connect again"})
			}
			grant, err := v.responses[job].Open(grantLine.FindStringSubmatch(source)[1])
			if err != nil {
				return report(job, map[string]any{"error": err.Error()})
			}
			v.grants = append(v.grants, grant)
			if v.answers[job], err = v.responses[job].Answer(v.url, v.instance); err != nil {
				return report(job, map[string]any{"error": err.Error()})
			}
		}
		return report(job, map[string]any{"answer": v.answers[job]})
	}
	return ""
}

// fakeNotebook is a tab's notebook.
type fakeNotebook struct {
	vm *fakeVM
	// before, if not nil, is asked before each call; an error is the call's.
	before func(ctx context.Context, call, id string) error
	// show, if not nil, changes what the page shows of a cell's outputs.
	show func(source, printed string) (outputs string, err error)

	mu    sync.Mutex
	cells []page.Cell
	seen  strings.Builder // every source and output
	next  int
	done  chan struct{}
}

func newNotebook(vm *fakeVM) *fakeNotebook {
	return &fakeNotebook{vm: vm, done: make(chan struct{}), cells: []page.Cell{{ID: "user", Type: "code", Source: "x = 1"}}}
}

func (n *fakeNotebook) Done() <-chan struct{} { return n.done }

// again returns a new tab with the same notebook, as after a reload.
func (n *fakeNotebook) again() *fakeNotebook {
	fresh := newNotebook(n.vm)
	fresh.cells, fresh.next = n.cells, n.next
	return fresh
}

// lose ends the tab.
func (n *fakeNotebook) lose() { close(n.done) }

func (n *fakeNotebook) call(ctx context.Context, call, id string) error {
	select {
	case <-n.done:
		return page.ErrTabLost
	default:
	}
	if n.before != nil {
		if err := n.before(ctx, call, id); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (n *fakeNotebook) Cells(ctx context.Context, _, _ int, _ bool) ([]page.Cell, error) {
	if err := n.call(ctx, "get_cells", ""); err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.cells), nil
}

func (n *fakeNotebook) AddCode(ctx context.Context, index int, _, code string) (string, error) {
	if err := n.call(ctx, "add_code_cell", ""); err != nil {
		return "", err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if index < 0 || index > len(n.cells) {
		return "", &page.ToolError{Tool: "add_code_cell", Text: "cellIndex is out of range"}
	}
	n.next++
	id := fmt.Sprintf("cell-%d", n.next)
	n.cells = slices.Insert(n.cells, index, page.Cell{ID: id, Type: "code", Source: code})
	n.seen.WriteString(code)
	return id, nil
}

// edit calls change with the cell's index.
func (n *fakeNotebook) edit(id string, change func(at int)) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	at := slices.IndexFunc(n.cells, func(c page.Cell) bool { return c.ID == id })
	if at < 0 {
		return &page.ToolError{Tool: "update_cell", Text: "no such cell"}
	}
	change(at)
	return nil
}

func (n *fakeNotebook) Update(ctx context.Context, id, content string) error {
	if err := n.call(ctx, "update_cell", id); err != nil {
		return err
	}
	return n.edit(id, func(at int) {
		n.cells[at].Source = content
		n.seen.WriteString(content)
	})
}

func (n *fakeNotebook) Delete(ctx context.Context, id string) error {
	if err := n.call(ctx, "delete_cell", id); err != nil {
		return err
	}
	return n.edit(id, func(at int) { n.cells = slices.Delete(n.cells, at, at+1) })
}

func (n *fakeNotebook) Run(ctx context.Context, id string) (page.Result, error) {
	if err := n.call(ctx, "run_code_cell", id); err != nil {
		return page.Result{}, err
	}
	var source string
	if err := n.edit(id, func(at int) { source = n.cells[at].Source }); err != nil {
		return page.Result{}, err
	}
	text := n.vm.run(source)
	if ctx.Err() != nil {
		return page.Result{}, page.ErrRunning
	}
	outputs := stream(text)
	if n.show != nil {
		shown, err := n.show(source, text)
		if err != nil {
			return page.Result{}, err
		}
		outputs = shown
	}
	n.seen.WriteString(outputs)
	return page.Result{Outputs: json.RawMessage(outputs)}, nil
}

// stream is the outputs of a cell that printed text.
func stream(text string) string {
	return `[{"output_type": "stream", "name": "stdout", "text": ` + quoted(text) + `}]`
}

func quoted(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// titles returns the first line of each cell.
func (n *fakeNotebook) titles() (all []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.cells {
		title, _, _ := strings.Cut(c.Source, "\n")
		all = append(all, title)
	}
	return all
}

const someToken = "2abcDEFghiJKLmnoPQRstuVWXyz"

// setup is a laptop with a Bridge, and a VM with a notebook.
type setup struct {
	t     *testing.T
	vm    *fakeVM
	nb    *fakeNotebook
	store *pairing.Store
	cfg   Config
	b     *Bridge
	steps []string
}

func newSetup(t *testing.T) *setup {
	t.Helper()
	s := &setup{t: t, vm: newVM(), store: pairing.Open(t.TempDir())}
	s.nb = newNotebook(s.vm)
	s.cfg = Config{
		Release: func(context.Context) (bootstrap.Release, error) {
			return bootstrap.Release{Releases: "https://releases.example", Version: "v1.0.0", SHA256AMD64: strings.Repeat("a", 64), SHA256ARM64: strings.Repeat("b", 64)}, nil
		},
		Tunnel: func() (Tunnel, error) { return Tunnel{Token: someToken, Domain: "a.example"}, nil },
		Store:  s.store,
		Getenv: func(string) string { return "" },
		Reach:  s.reach,
	}
	s.b = New(s.cfg)
	t.Cleanup(func() { s.b.Close() })
	return s
}

// reach answers for the VM's executor if the secret is that of its newest grant.
func (s *setup) reach(_ context.Context, r pairing.Runtime) (string, error) {
	if n := len(s.vm.grants); n > 0 && s.vm.grants[n-1].Secret == r.Secret.Reveal() && r.URL == s.vm.url {
		return s.vm.instance, nil
	}
	return "", errors.New("no executor answers there")
}

func (s *setup) start(r Request) (Paired, error) {
	s.t.Helper()
	return s.b.Start(s.t.Context(), s.nb, r, func(step string) { s.steps = append(s.steps, step) })
}

// pairs is start for a bridge that must stand. It leaves no cell.
func (s *setup) pairs(r Request) Paired {
	s.t.Helper()
	paired, err := s.start(r)
	if err != nil {
		s.t.Fatal(err)
	}
	s.clean()
	return paired
}

// put pairs a runtime of a person.
func (s *setup) put(name, url string) pairing.Runtime {
	s.t.Helper()
	r := pairing.Runtime{Name: name, URL: url, Secret: auth.GenerateSecret()}
	if _, err := s.store.Put(r); err != nil {
		s.t.Fatal(err)
	}
	return r
}

// stored returns the stored runtimes as name and URL.
func (s *setup) stored() (all []string) {
	s.t.Helper()
	list, err := s.store.List()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, r := range list {
		all = append(all, r.Name+" "+r.URL)
	}
	return all
}

// clean fails unless the notebook is as before.
func (s *setup) clean() {
	s.t.Helper()
	if titles := s.nb.titles(); !slices.Equal(titles, []string{"x = 1"}) {
		s.t.Errorf("the notebook has the cells %q", titles)
	}
}

// untouched fails unless the notebook is as before and nothing was paired.
func (s *setup) untouched() {
	s.t.Helper()
	s.clean()
	if all := s.stored(); len(all) > 0 {
		s.t.Errorf("paired: %q", all)
	}
}
