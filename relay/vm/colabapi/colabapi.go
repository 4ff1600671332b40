// Package colabapi starts and uses Colab's VMs through Google's official API
// (colaboratory.googleapis.com, v1beta) and through the proxy in front of each VM's Jupyter
// server.
//
// The API is in beta. What is not in its public reference, and was only reported by others or
// assumed, has the word "unverified" in a comment. Nothing here was tested against Google.
//
// Beside relay/client, this is the only package that makes HTTP calls. It must not write a
// token anywhere but into the login file, must not put one into an error or a log, must not
// follow redirects, and must not report a VM as gone unless the API itself says so: a proxy
// answers 404 also to a token that has expired.
//
// Start reading at Backend, then call.go (one call of the API), connection.go (tokens in memory,
// and the proxy), exec.go (Upload and Exec) and login.go.
package colabapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/google/uuid"

	"colabrelay/relay/client"
	"colabrelay/relay/vm"
	"colabrelay/shared/lazy"
)

// Config is what a Backend needs.
type Config struct {
	Dir       string            // folder of the login file
	Transport http.RoundTripper // nil for the relay's usual one
	Log       *slog.Logger      // nil for none; never gets tokens, code, or what VMs send
}

// Backend is a vm.Backend, and a vm.Proxied. It is safe for concurrent use.
type Backend struct {
	transport http.RoundTripper
	dir       string // of the login file
	access    *expiring[access]
	log       *slog.Logger

	mu        sync.Mutex
	addresses map[string]*expiring[address] // by the VM's id
}

var (
	_ vm.Backend = (*Backend)(nil)
	_ vm.Proxied = (*Backend)(nil)
)

// New returns a Backend. It sends nothing, and reads the login at the first call.
func New(cfg Config) *Backend {
	if cfg.Transport == nil {
		cfg.Transport = client.NewTransport()
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Backend{
		transport: cfg.Transport, dir: cfg.Dir, access: newExpiring[access](),
		log: cfg.Log.With("component", "colabapi"), addresses: map[string]*expiring[address]{},
	}
}

// Close closes idle connections.
func (b *Backend) Close() { (&http.Client{Transport: b.transport}).CloseIdleConnections() }

// Name implements vm.Backend.
func (b *Backend) Name() string { return "api" }

// idPattern is what the API accepts as an id (RFC 1034). Ids are part of paths.
var idPattern = lazy.Regexp(`^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)

func checkID(id string) error {
	if !idPattern().MatchString(id) {
		return fmt.Errorf("VM id %q: use at most 63 lower-case letters, digits and dashes, and begin with a letter", id[:min(len(id), 64)])
	}
	return nil
}

const (
	// maxPages bounds the pages of a list. The API's reference has no pages today.
	maxPages = 50
	// goneLimit is how long Delete waits until a VM is gone.
	goneLimit = 90 * time.Second
)

// noAccelerator is the accelerator of a VM without one.
const noAccelerator = "NONE"

// specKey is RuntimeSpec.Key.
type specKey struct {
	Variant     string `json:"variant"`
	Accelerator string `json:"accelerator"`
	Shape       string `json:"shape"`
}

func (k specKey) spec() vm.Spec {
	accelerator := k.Accelerator
	if accelerator == noAccelerator {
		accelerator = vm.CPU
	}
	return vm.Spec{Accelerator: accelerator, HighRAM: k.Shape == "SHAPE_HIGHMEM"}
}

// runtimeResource is Runtime.
type runtimeResource struct {
	Name       string          `json:"name,omitempty"`
	Spec       specKey         `json:"runtimeSpec"`
	Connection *connectionInfo `json:"connectionInfo,omitempty"`
}

// connectionInfo is ConnectionInfo.
type connectionInfo struct {
	URL        string    `json:"url"`
	Token      string    `json:"token"`
	ExpireTime time.Time `json:"expireTime"` // of the token
}

var acceleratorPattern = lazy.Regexp(`^[A-Z0-9]{0,20}$`)

// offers returns what the account may start, each with the key that asks for it.
func (b *Backend) offers(ctx context.Context) (map[vm.Spec]specKey, error) {
	const doing = "ask which VMs the account may start"
	var page struct {
		Specs []struct { // RuntimeSpec
			Key      specKey `json:"key"`
			Eligible bool    `json:"eligible"`
		} `json:"runtimeSpecs"`
	}
	if err := b.do(ctx, call{doing: doing, method: http.MethodGet, path: "/v1beta/runtimespecs"}, &page); err != nil {
		return nil, err
	}
	if len(page.Specs) > vm.MaxMachines {
		return nil, fmt.Errorf("%s: Google lists more than %d kinds", doing, vm.MaxMachines)
	}
	offers := map[vm.Spec]specKey{}
	for _, k := range page.Specs {
		if s := k.Key.spec(); k.Eligible && acceleratorPattern().MatchString(s.Accelerator) {
			offers[s] = k.Key
		}
	}
	// What has high RAM only is also what somebody gets who does not ask for high RAM.
	for s, key := range maps.Clone(offers) {
		if s.HighRAM = false; offers[s] == (specKey{}) {
			offers[s] = key
		}
	}
	return offers, nil
}

// Specs implements vm.Backend.
func (b *Backend) Specs(ctx context.Context) ([]vm.Spec, error) {
	offers, err := b.offers(ctx)
	return slices.AppendSeq([]vm.Spec{}, maps.Keys(offers)), err // not nil: an empty list is an answer
}

// Create implements vm.Backend.
func (b *Backend) Create(ctx context.Context, id string, s vm.Spec) error {
	if err := checkID(id); err != nil {
		return err
	}
	offers, err := b.offers(ctx)
	if err != nil {
		return err
	}
	key, ok := offers[s]
	if !ok {
		return fmt.Errorf("%w: %s is not among those that Google lists for it", vm.ErrNotEligible, s)
	}
	// One requestId for all attempts: a second one finds the Operation of the first.
	query := url.Values{"requestId": {uuid.NewString()}, "runtimeId": {id}}
	var op operation
	err = b.do(ctx, call{doing: "start a VM", method: http.MethodPost, path: "/v1beta/runtimes", query: query, body: runtimeResource{Spec: key}}, &op)
	if err == nil {
		err = b.wait(ctx, op)
	}
	// Google may refuse an accelerator in its answer (unverified) or in the Operation. Then the
	// next one has its turn.
	switch {
	case key.Accelerator != noAccelerator && errors.Is(err, errPrecondition):
		err = fmt.Errorf("%w: %v", vm.ErrNoneFree, err)
	case key.Accelerator != noAccelerator && errors.Is(err, errInvalidArgument):
		err = fmt.Errorf("%w: %v", vm.ErrNotEligible, err)
	}
	return err
}

// runtime returns a VM with a fresh token. It returns ErrGone only if the account's list lacks
// the VM too: 404 is also the answer to a call that the API no longer has.
func (b *Backend) runtime(ctx context.Context, id string) (found runtimeResource, err error) {
	if err := checkID(id); err != nil {
		return found, err
	}
	err = b.do(ctx, call{doing: fmt.Sprintf("look up VM %q", id), method: http.MethodGet, path: "/v1beta/runtimes/" + id}, &found)
	switch {
	case err == nil && found.Name != "runtimes/"+id:
		return found, fmt.Errorf("look up VM %q: Google answered with another VM", id)
	case !errors.Is(err, errNotFound):
		return found, err
	}
	all, listErr := b.List(ctx)
	switch {
	case listErr != nil:
		return found, fmt.Errorf("%v; whether the VM still exists is unknown: %v", err, listErr)
	case slices.ContainsFunc(all, func(m vm.Machine) bool { return m.ID == id }):
		return found, fmt.Errorf("%w; the VM is still listed: try again in a minute", err)
	}
	return found, fmt.Errorf("%w: %q", vm.ErrGone, id)
}

// gone reports whether err is the API's own answer that there is no such VM.
func gone(err error) bool { return errors.Is(err, vm.ErrGone) }

// List implements vm.Backend. The API does not tell a VM's state.
func (b *Backend) List(ctx context.Context) ([]vm.Machine, error) {
	const doing = "list the account's VMs"
	all, query := []vm.Machine{}, url.Values{}
	for range maxPages {
		var page struct {
			Runtimes []runtimeResource `json:"runtimes"`
			Next     string            `json:"nextPageToken"`
		}
		if err := b.do(ctx, call{doing: doing, method: http.MethodGet, path: "/v1beta/runtimes", query: query}, &page); err != nil {
			return nil, err
		}
		for _, r := range page.Runtimes {
			ready := r.Connection != nil && r.Connection.Token != ""
			all = append(all, vm.Machine{ID: strings.TrimPrefix(r.Name, "runtimes/"), Spec: r.Spec.spec(), Ready: ready})
		}
		if len(all) > vm.MaxMachines {
			return nil, fmt.Errorf("%s: there are more than %d", doing, vm.MaxMachines)
		}
		if page.Next == "" {
			return all, nil
		}
		query.Set("pageToken", page.Next)
	}
	return nil, fmt.Errorf("%s: Google's list does not end after %d pages", doing, maxPages)
}

// Delete implements vm.Backend.
func (b *Backend) Delete(ctx context.Context, id string) error {
	if err := checkID(id); err != nil {
		return err
	}
	err := b.do(ctx, call{doing: fmt.Sprintf("stop VM %q", id), method: http.MethodDelete, path: "/v1beta/runtimes/" + id, query: url.Values{"allowMissing": {"true"}}}, nil)
	if err != nil && !errors.Is(err, errNotFound) {
		return err
	}
	b.mu.Lock()
	delete(b.addresses, id)
	b.mu.Unlock()
	still := fmt.Errorf("stop VM %q: Google accepted that, but the VM still exists: look at `colab-relay vm list`, and stop it at https://colab.research.google.com if it stays", id)
	_, err = backoff.Retry(ctx, func() (none struct{}, err error) {
		switch _, err := b.runtime(ctx, id); {
		case gone(err):
			return none, nil
		case err != nil && !errors.Is(err, errNotFound):
			return none, backoff.Permanent(err)
		}
		return none, still
	}, backoff.WithMaxElapsedTime(goneLimit))
	return err
}
