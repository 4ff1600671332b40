package colabapitest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"colabrelay/relay/vm"
)

// rpcError is google.rpc.Status in the forms that the API has for it.
type rpcError struct {
	Code    int    // of google.rpc.Code
	Reason  string // of an ErrorInfo; empty for none
	Message string
}

func (e rpcError) body(code int) map[string]any {
	details := []any{map[string]any{"@type": "type.googleapis.com/google.rpc.Help", "links": []any{}}}
	if e.Reason != "" {
		details = append(details, map[string]any{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": e.Reason, "domain": "colaboratory.googleapis.com"})
	}
	return map[string]any{"code": code, "message": e.Message, "details": details}
}

// WriteError answers a call with an error in the API's form.
func WriteError(w http.ResponseWriter, status int, reason, message string) {
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.WriteHeader(status)
	body := rpcError{0, reason, message}.body(status)
	body["status"] = statuses[status]
	_ = json.NewEncoder(w).Encode(map[string]any{"error": body})
}

// statuses are the names of google.rpc.Code for the API's HTTP statuses.
var statuses = map[int]string{
	400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 409: "ALREADY_EXISTS",
	429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE",
}

// refusals are how the API refuses a creation.
var refusals = map[error]rpcError{
	vm.ErrNoneFree: {9, "", "The accelerator is not available."},
	vm.ErrTooMany:  {9, "TOO_MANY_ACTIVE_RUNTIMES", "Too many runtimes."},
	vm.ErrQuota:    {9, "QUOTA_EXCEEDED_USAGE_TIME", "Usage time is used up."},
	vm.ErrDenied:   {9, "DENYLISTED", "This account is blocked."},
}

// Refuse makes the next creation fail with one of relay/vm's errors.
func (g *Google) Refuse(reason error) {
	e, ok := refusals[reason]
	if !ok && reason != vm.ErrNotEligible {
		g.t.Fatalf("no refusal for %v", reason)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refusals = append(g.refusals, e) // zero for ErrNotEligible, which is no Operation
}

type specKey struct {
	Variant     string `json:"variant"`
	Accelerator string `json:"accelerator"`
	Shape       string `json:"shape"`
}

// specs are what the account may start; A100 is listed and not eligible.
var specs = []struct {
	Key      specKey `json:"key"`
	Eligible bool    `json:"eligible"`
}{
	{specKey{"VARIANT_CPU", "NONE", "SHAPE_STANDARD"}, true},
	{specKey{"VARIANT_CPU", "NONE", "SHAPE_HIGHMEM"}, true},
	{specKey{"VARIANT_GPU", "T4", "SHAPE_STANDARD"}, true},
	{specKey{"VARIANT_GPU", "L4", "SHAPE_HIGHMEM"}, true},
	{specKey{"VARIANT_GPU", "A100", "SHAPE_HIGHMEM"}, false},
	{specKey{"VARIANT_TPU", "V5E1", "SHAPE_STANDARD"}, true},
}

// pending is an Operation.
type pending struct {
	name  string
	done  bool // after the first call of operations.wait
	error *rpcError
	id    string // of the VM
	spec  specKey
}

func (g *Google) api(w http.ResponseWriter, r *http.Request) {
	if !g.account.accepts(r) {
		WriteError(w, http.StatusUnauthorized, "ACCESS_TOKEN_EXPIRED", "Request had invalid authentication credentials.")
		return
	}
	path := strings.TrimPrefix(r.URL.Path, "/v1beta")
	id, one := strings.CutPrefix(path, "/runtimes/")
	switch {
	case r.Method == http.MethodGet && path == "/runtimespecs":
		write(w, map[string]any{"runtimeSpecs": specs})
	case r.Method == http.MethodGet && path == "/runtimes":
		g.list(w, r)
	case r.Method == http.MethodPost && path == "/runtimes":
		g.create(w, r)
	case r.Method == http.MethodGet && one:
		g.get(w, id)
	case r.Method == http.MethodDelete && one:
		g.delete(w, r, id)
	case r.Method == http.MethodGet && strings.HasPrefix(r.URL.Path, "/v1/operations/"):
		g.operation(w, r)
	default:
		WriteError(w, http.StatusNotFound, "", "Method not found.")
	}
}

func write(w http.ResponseWriter, answer any) {
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	_ = json.NewEncoder(w).Encode(answer)
}

func (g *Google) list(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	start, _ := strconv.Atoi(r.URL.Query().Get("pageToken"))
	end := len(g.order)
	if g.PageSize > 0 {
		end = min(end, start+g.PageSize)
	}
	page := map[string]any{}
	if end < len(g.order) {
		page["nextPageToken"] = strconv.Itoa(end)
	}
	all := []any{}
	for _, id := range g.order[min(start, end):end] {
		all = append(all, g.resourceLocked(g.vms[id]))
	}
	page["runtimes"] = all
	write(w, page)
}

var runtimeID = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)

func (g *Google) create(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Spec specKey `json:"runtimeSpec"`
	}
	q := r.URL.Query()
	request, err := uuid.Parse(q.Get("requestId"))
	if err == nil && request.Version() != 4 {
		err = errors.New("requestId is no UUID4")
	}
	if err == nil {
		err = json.NewDecoder(r.Body).Decode(&body)
	}
	if err == nil && !runtimeID.MatchString(q.Get("runtimeId")) {
		err = errors.New("runtimeId is no RFC 1034 label")
	}
	known := slices.ContainsFunc(specs, func(s struct {
		Key      specKey `json:"key"`
		Eligible bool    `json:"eligible"`
	}) bool {
		return s.Key == body.Spec && s.Eligible
	})
	if err == nil && !known {
		err = fmt.Errorf("the spec %+v is not available", body.Spec)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	op := g.byRequest[request.String()]
	if err == nil && op == nil && len(g.refusals) > 0 && g.refusals[0].Code == 0 {
		g.refusals = g.refusals[1:]
		err = errors.New("the account is not eligible")
	}
	if err != nil {
		WriteError(w, http.StatusBadRequest, "", err.Error())
		return
	}
	if op == nil {
		op = g.startLocked(q.Get("runtimeId"), body.Spec)
		g.byRequest[request.String()] = op
	}
	write(w, op.answer())
}

// startLocked begins a creation.
func (g *Google) startLocked(id string, spec specKey) *pending {
	op := &pending{name: "operations/" + uuid.NewString(), id: id, spec: spec}
	g.operations[op.name] = op
	switch {
	case g.vms[id] != nil:
		op.error = &rpcError{6, "", "The runtime already exists."}
	case len(g.refusals) > 0:
		op.error = &g.refusals[0]
		g.refusals = g.refusals[1:]
	default:
		g.addLocked(id, spec)
	}
	return op
}

// addLocked adds a VM, which exists from the beginning of its creation on.
func (g *Google) addLocked(id string, spec specKey) {
	g.vms[id] = &machine{id: id, spec: spec}
	g.order = append(g.order, id)
}

func (p *pending) answer() map[string]any {
	switch {
	case !p.done:
		return map[string]any{"name": p.name}
	case p.error != nil:
		return map[string]any{"name": p.name, "done": true, "error": p.error.body(p.error.Code)}
	}
	return map[string]any{"name": p.name, "done": true, "response": map[string]any{"@type": "type.googleapis.com/google.colab.v1beta.Runtime", "name": "runtimes/" + p.id}}
}

func (g *Google) operation(w http.ResponseWriter, r *http.Request) {
	name, waiting := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, "/v1/"), ":wait")
	g.mu.Lock()
	defer g.mu.Unlock()
	op := g.operations[name]
	switch {
	case op == nil:
		WriteError(w, http.StatusNotFound, "", "Operation not found.")
		return
	case waiting && r.URL.Query().Get("timeout") != "20s":
		WriteError(w, http.StatusBadRequest, "", "timeout is not a duration.")
		return
	}
	op.done = true
	write(w, op.answer())
}

func (g *Google) get(w http.ResponseWriter, id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	m := g.vms[id]
	if m == nil {
		WriteError(w, http.StatusNotFound, "", "Requested entity was not found.")
		return
	}
	write(w, g.resourceLocked(m))
}

func (g *Google) delete(w http.ResponseWriter, r *http.Request, id string) {
	g.mu.Lock()
	m := g.vms[id]
	g.mu.Unlock()
	if m == nil && r.URL.Query().Get("allowMissing") != "true" {
		WriteError(w, http.StatusNotFound, "", "Requested entity was not found.")
		return
	}
	g.End(id)
	write(w, map[string]any{})
}

// resourceLocked returns a VM with a token that works.
func (g *Google) resourceLocked(m *machine) map[string]any {
	if m.token == "" {
		m.token = g.newSecretLocked("proxy-")
	}
	return map[string]any{"name": "runtimes/" + m.id, "runtimeSpec": m.spec, "connectionInfo": map[string]any{
		"endpoint": "internal", "url": "https://8080-" + m.id + proxyDomain,
		"token": m.token, "expireTime": time.Now().Add(time.Hour).UTC().Format(time.RFC3339Nano),
	}}
}

// Running returns the ids of all VMs, in the order of their creation.
func (g *Google) Running() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.order)
}

// Add adds a CPU VM that somebody else started.
func (g *Google) Add(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.addLocked(id, specs[0].Key)
}
