package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// model is a model that follows a script, behind the APIs that the hosts speak. It answers a
// request that holds the results of n calls with the script's step n, so that a repeated request
// gets the same answer. After the last step it says that it is done.
type model struct {
	url    string
	script []step
	keep   string // a folder for the requests
	http   *http.Server

	mu       sync.Mutex
	count    int
	last     request       // the last one that offered the relay's tools
	problems []string      // requests that could not be read or answered
	changed  chan struct{} // closed at the next request
}

// step is a call of one of the relay's tools. Of its arguments, lastExecution stands for the
// execution_id in the answer before. Where Until is set, the model calls again until the answer
// has it or an execution_id, three times at most, as a model does whose host gave up the call.
type step struct {
	Tool  string
	Args  map[string]any
	Until string
}

// finalAnswer is the tool by which an agent of smolagents ends.
const finalAnswer = "final_answer"

const lastExecution = "the last execution_id"

var executionID = regexp.MustCompile(`execution_id[=" ]+([0-9a-f-]{36})`)

// after returns the step with the execution_id of the last answer.
func (s step) after(done []exchange) step {
	if s.Args["execution_id"] != lastExecution || len(done) == 0 {
		return s
	}
	if id := executionID.FindStringSubmatch(strings.Join(done[len(done)-1].Texts, "\n")); id != nil {
		s.Args = maps.Clone(s.Args)
		s.Args["execution_id"] = id[1]
	}
	return s
}

// isDone says whether the model goes on after these calls of a step.
func (s step) isDone(calls []exchange) bool {
	text := strings.Join(calls[len(calls)-1].Texts, "\n")
	return s.Until == "" || len(calls) == 3 || strings.Contains(text, s.Until) || executionID.MatchString(text)
}

// bySteps returns the answered calls of each step, and how many steps are done.
func bySteps(script []step, all []exchange) (calls [][]exchange, done int) {
	for _, e := range all {
		if len(calls) == done {
			calls = append(calls, nil)
		}
		calls[done] = append(calls[done], e)
		if done >= len(script) || script[done].isDone(calls[done]) {
			done++
		}
	}
	return calls, done
}

// request is what a host sends to the model, in a form that is the same for all APIs.
type request struct {
	Model  string
	Stream bool
	JSON   bool // the answer must be JSON: a question of the host's own
	Tools  []tool
	Search string // the tool that loads the schemas of others, "" if there is none
	Items  []item
}

// tool names a tool as a call must name it.
type tool struct{ Name, Namespace string }

// item is a part of the conversation, in its order.
type item struct {
	Kind   kind
	ID     string // of a call and its result
	Name   string // of a call's tool
	Texts  []string
	Images []picture
}

type kind string

const (
	called kind = "call"
	result kind = "result"
	said   kind = "said" // by the user, or by the host in the user's name
)

// picture is an image as base64.
type picture struct{ MIMEType, Data string }

// reply is what the model answers: a call, or a text if there is none.
type reply struct {
	N    int // of the request
	Text string
	Call *call
}

// call is a call of a tool. Search marks that of the host's tool that loads others.
type call struct {
	ID     string
	Tool   tool
	Args   map[string]any
	Search bool
}

// dialect is one API.
type dialect interface {
	read(body []byte) (request, error)
	// write returns the events of a stream, or one object if the request asked for no stream.
	write(q request, r reply) []event
}

// event is one of a stream. An empty name is left out.
type event struct {
	Name string
	Data any
}

// startModel starts a model on a free port of loopback.
func startModel(script []step, keep string) (*model, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m := &model{url: "http://" + listener.Addr().String(), script: script, keep: keep, changed: make(chan struct{})}
	m.http = &http.Server{Handler: m, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = m.http.Serve(listener) }()
	return m, nil
}

func (m *model) close() { _ = m.http.Close() }

// dialectOf returns the API of a path, nil if there is none.
func dialectOf(path string) dialect {
	switch {
	case strings.HasSuffix(path, "/messages"):
		return anthropic{}
	case strings.HasSuffix(path, "/responses"):
		return responses{}
	case strings.HasSuffix(path, "/chat/completions"):
		return chat{}
	case strings.Contains(path, "enerateContent"):
		return gemini{stream: strings.Contains(path, "stream")}
	}
	return nil
}

// ServeHTTP answers a request.
func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d := dialectOf(r.URL.Path)
	if r.Method != http.MethodPost || d == nil {
		other(w, r)
		return
	}
	body, err := bodyOf(r)
	var q request
	if err == nil {
		q, err = d.read(body)
	}
	if err != nil {
		m.problem(fmt.Sprintf("%s: %v", r.URL.Path, err))
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	events := d.write(q, m.answer(q, body))
	if !q.Stream {
		object(w, http.StatusOK, events[0].Data)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range events {
		if e.Name != "" {
			fmt.Fprintf(w, "event: %s\n", e.Name)
		}
		data, isText := e.Data.(string)
		if !isText {
			data = string(marshal(e.Data))
		}
		fmt.Fprintf(w, "data: %s\n\n", data)
	}
}

// other answers what hosts ask beside the conversation.
func other(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodHead:
	case strings.HasSuffix(r.URL.Path, "/count_tokens"):
		object(w, http.StatusOK, map[string]any{"input_tokens": 1000})
	case strings.HasSuffix(r.URL.Path, ":countTokens"):
		object(w, http.StatusOK, map[string]any{"totalTokens": 1000})
	case r.Method == http.MethodGet && strings.Contains(r.URL.Path, "models"):
		object(w, http.StatusOK, map[string]any{"object": "list", "data": []any{}, "models": []any{}})
	default:
		object(w, http.StatusNotFound, map[string]any{"error": map[string]any{"type": "not_found_error", "message": "not found"}})
	}
}

func bodyOf(r *http.Request) ([]byte, error) {
	reader := io.Reader(r.Body)
	switch encoding := r.Header.Get("Content-Encoding"); encoding {
	case "", "identity":
	case "gzip":
		unpacked, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, err
		}
		reader = unpacked
	default:
		return nil, fmt.Errorf("the body's encoding %q is not known", encoding)
	}
	return io.ReadAll(reader)
}

func object(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(marshal(v))
}

// marshal returns JSON of a value that was read from JSON or made from constants.
func marshal(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v)
	return bytes.TrimSpace(b.Bytes())
}

// answer remembers a request and decides what the model does.
func (m *model) answer(q request, body []byte) reply {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count++
	r := reply{N: m.count, Text: "done"}
	main := len(q.Tools) > 2 // hosts ask for titles and the like without tools
	if main {
		m.last = q
		close(m.changed)
		m.changed = make(chan struct{})
	}
	if err := os.WriteFile(filepath.Join(m.keep, fmt.Sprintf("request-%03d.json", m.count)), body, 0o600); err != nil {
		m.problems = append(m.problems, err.Error())
	}
	done := exchanges(q)
	_, steps := bySteps(m.script, done)
	switch {
	case q.JSON:
		r.Text = `{"reasoning":"-","next_speaker":"user","model_choice":"flash","complexity_reasoning":"-","complexity_score":10}`
	case main && steps < len(m.script):
		s := m.script[steps].after(done)
		if r.Call = q.next(s, len(done)); r.Call == nil {
			m.problems = append(m.problems, fmt.Sprintf("the host offers no tool %s", s.Tool))
		}
	case slices.Contains(q.Tools, tool{Name: finalAnswer}):
		r.Call = &call{ID: "final", Tool: tool{Name: finalAnswer}, Args: map[string]any{"answer": r.Text}}
	}
	return r
}

// next returns the call of a step, or that of the tool which loads the step's tool. It returns
// nil if the host offers neither.
func (q request) next(s step, n int) *call {
	for _, t := range q.Tools {
		if t.Name == s.Tool || strings.HasSuffix(t.Name, "_"+s.Tool) && strings.Contains(t.Name, "colab") {
			return &call{ID: fmt.Sprintf("call_%d", n), Tool: t, Args: s.Args}
		}
	}
	searches := 0
	for _, i := range q.Items {
		if i.Kind == called && i.Name == q.Search {
			searches++
		}
	}
	if q.Search == "" || searches > n {
		return nil
	}
	return &call{ID: fmt.Sprintf("search_%d_%d", n, searches), Tool: tool{Name: q.Search}, Search: true, Args: map[string]any{"query": s.Tool}}
}

func (m *model) problem(text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.problems = append(m.problems, text)
}

// read returns the last request and the problems so far.
func (m *model) read() (request, []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last, slices.Clone(m.problems)
}

// await returns the first request that meets a condition.
func (m *model) await(ctx context.Context, condition func(request) bool) (request, error) {
	for {
		m.mu.Lock()
		q, changed := m.last, m.changed
		m.mu.Unlock()
		if condition(q) {
			return q, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return q, ctx.Err()
		}
	}
}

// exchange is a call of the script and all that the model got between it and the next one.
type exchange struct {
	Tool   string
	Texts  []string
	Images []picture
}

// exchanges returns the answered calls of a request, without those that load tools.
func exchanges(q request) []exchange {
	var all []exchange
	open, searches := false, map[string]bool{}
	name := map[string]string{}
	for _, i := range q.Items {
		switch {
		case i.Kind == called:
			open = false
			name[i.ID] = i.Name
			searches[i.ID] = i.Name == q.Search
		case i.Kind == result && !searches[i.ID]:
			open = true
			all = append(all, exchange{Tool: name[i.ID]})
			fallthrough
		case i.Kind == said && open:
			last := &all[len(all)-1]
			last.Texts = append(last.Texts, i.Texts...)
			last.Images = append(last.Images, i.Images...)
		}
	}
	return all
}
