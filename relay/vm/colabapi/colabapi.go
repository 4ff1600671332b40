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
// Start reading at Backend, then call.go (one call of the API), connection.go (the proxy's
// token), exec.go (Upload and Exec) and login.go.
package colabapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/google/uuid"

	"colabrelay/relay/client"
	"colabrelay/relay/vm"
)

// TestVariable names the environment variable with the address of a stand-in for Google on
// this computer. Addresses elsewhere are refused, so that nobody is led to send tokens away.
const TestVariable = "RELAY_TEST_COLAB_API"

// Config is what a Backend needs.
type Config struct {
	Dir    string              // folder of the login file
	Getenv func(string) string // only TestVariable is read
	Log    *slog.Logger        // nil for none; never gets tokens, code, or what VMs send
}

// Backend is a vm.Backend, and a vm.Proxied. It is safe for concurrent use.
type Backend struct {
	site      site
	transport *http.Transport
	tokens    *tokens
	log       *slog.Logger

	mu          sync.Mutex
	connections map[string]*connection // by the VM's id
}

var (
	_ vm.Backend = (*Backend)(nil)
	_ vm.Proxied = (*Backend)(nil)
)

// New returns a Backend. It sends nothing, and reads the login at the first call.
func New(cfg Config) (*Backend, error) {
	google, err := siteOf(cfg.Getenv)
	if err != nil {
		return nil, err
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	b := &Backend{
		site: google, transport: google.newTransport(), log: cfg.Log.With("component", "colabapi"),
		connections: map[string]*connection{},
	}
	b.tokens = newTokens(func() (credentials, error) { return loadCredentials(cfg.Dir, google) }, b.transport)
	return b, nil
}

// Close closes idle connections.
func (b *Backend) Close() { b.transport.CloseIdleConnections() }

// Name implements vm.Backend.
func (b *Backend) Name() string { return "api" }

// idPattern is what the API accepts as an id (RFC 1034). Ids are part of paths.
var idPattern = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)

func checkID(id string) error {
	if !idPattern.MatchString(id) {
		return fmt.Errorf("VM id %q: use at most 63 lower-case letters, digits and dashes, and begin with a letter", id[:min(len(id), 64)])
	}
	return nil
}

// newTransport returns the transport for the API, the login and the proxies. On a stand-in's
// computer, names below .localhost are that computer (RFC 6761), which not every resolver knows.
func (s site) newTransport() *http.Transport {
	t := client.NewTransport()
	if s.test != nil {
		t.Proxy = nil
		t.DialContext = localDial(t.DialContext)
	}
	return t
}

const (
	// maxPages bounds the pages of a list. The API's reference has no pages today.
	maxPages = 50
	// readyLimit is how long Create waits for the connection of a VM that exists.
	readyLimit = 60 * time.Second
	// goneLimit is how long Delete waits until a VM is gone.
	goneLimit = 90 * time.Second
)

// noAccelerator is the accelerator of a VM without one.
const noAccelerator = "NONE"

const (
	shapeStandard = "SHAPE_STANDARD"
	shapeHighRAM  = "SHAPE_HIGHMEM"
)

// specKey is RuntimeSpec.Key.
type specKey struct {
	Variant     string `json:"variant"`
	Accelerator string `json:"accelerator"`
	Shape       string `json:"shape"`
}

func (k specKey) spec() vm.Spec {
	accelerator := k.Accelerator
	if accelerator == noAccelerator {
		accelerator = ""
	}
	return vm.Spec{Accelerator: accelerator, HighRAM: k.Shape == shapeHighRAM}
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

// machine converts an answer. The API tells neither a state nor when the VM ends.
func (r runtimeResource) machine() vm.Machine {
	return vm.Machine{ID: strings.TrimPrefix(r.Name, "runtimes/"), Spec: r.Spec.spec(), Ready: r.Connection != nil && r.Connection.Token != ""}
}

// eligibleKey is RuntimeSpec.
type eligibleKey struct {
	Key      specKey `json:"key"`
	Eligible bool    `json:"eligible"`
}

func (b *Backend) specKeys(ctx context.Context) ([]eligibleKey, error) {
	var page struct {
		Specs []eligibleKey `json:"runtimeSpecs"`
	}
	_, err := b.do(ctx, call{doing: "ask which VMs the account may start", method: http.MethodGet, path: "/v1beta/runtimespecs"}, &page)
	if len(page.Specs) > vm.MaxMachines {
		return nil, fmt.Errorf("ask which VMs the account may start: Google lists more than %d kinds", vm.MaxMachines)
	}
	return page.Specs, err
}

var acceleratorPattern = regexp.MustCompile(`^[A-Z0-9]{0,20}$`)

// Specs implements vm.Backend.
func (b *Backend) Specs(ctx context.Context) ([]vm.Spec, error) {
	keys, err := b.specKeys(ctx)
	if err != nil || len(keys) == 0 {
		return nil, err
	}
	specs := []vm.Spec{}
	for _, k := range keys {
		s := k.Key.spec()
		if !k.Eligible || !acceleratorPattern.MatchString(s.Accelerator) {
			continue
		}
		// What has high RAM only is also what somebody gets who does not ask for high RAM.
		for _, s := range []vm.Spec{s, {Accelerator: s.Accelerator}} {
			if !slices.Contains(specs, s) {
				specs = append(specs, s)
			}
		}
	}
	return specs, nil
}

// chooseKey returns the key for s among those that Google lists. If the only kind with that
// accelerator has high RAM, it is used also for a VM without. If Google lists none at all, the
// key is made.
func chooseKey(keys []eligibleKey, s vm.Spec) (specKey, error) {
	accelerator, shape := cmp.Or(s.Accelerator, noAccelerator), shapeStandard
	if s.HighRAM {
		shape = shapeHighRAM
	}
	if len(keys) == 0 {
		return specKey{variantOf(accelerator), accelerator, shape}, nil
	}
	var other specKey
	for _, k := range keys {
		switch {
		case !k.Eligible || k.Key.Accelerator != accelerator:
		case k.Key.Shape == shape:
			return k.Key, nil
		default:
			other = k.Key
		}
	}
	if other.Accelerator == "" || s.HighRAM {
		return specKey{}, fmt.Errorf("%w: %s is not among those that Google lists for it", vm.ErrNotEligible, s)
	}
	return other, nil
}

// variantOf tells TPUs by Google's names for them, V5E1 and V6E1.
func variantOf(accelerator string) string {
	switch {
	case accelerator == noAccelerator:
		return "VARIANT_CPU"
	case strings.HasPrefix(accelerator, "V"):
		return "VARIANT_TPU"
	}
	return "VARIANT_GPU"
}

// Create implements vm.Backend.
func (b *Backend) Create(ctx context.Context, id string, s vm.Spec) (vm.Machine, error) {
	if err := checkID(id); err != nil {
		return vm.Machine{}, err
	}
	keys, err := b.specKeys(ctx)
	if err != nil {
		return vm.Machine{}, err
	}
	key, err := chooseKey(keys, s)
	if err != nil {
		return vm.Machine{}, err
	}
	// One requestId for all attempts: a second one finds the Operation of the first.
	query := url.Values{"requestId": {uuid.NewString()}, "runtimeId": {id}}
	var op operation
	if _, err := b.do(ctx, call{doing: "start a VM", method: http.MethodPost, path: "/v1beta/runtimes", query: query, body: runtimeResource{Spec: key}}, &op); err != nil {
		return vm.Machine{}, refusedSpec(err, key)
	}
	if err := b.wait(ctx, op, key.Accelerator); err != nil {
		return vm.Machine{}, err
	}
	return b.whenReady(ctx, id)
}

// whenReady returns a VM that exists, with its connection if that comes in time.
func (b *Backend) whenReady(ctx context.Context, id string) (vm.Machine, error) {
	pending := errors.New("the VM has no connection yet")
	var got vm.Machine
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		found, _, err := b.runtime(ctx, id)
		if err != nil {
			return struct{}{}, backoff.Permanent(err)
		}
		if got = found.machine(); !got.Ready {
			return struct{}{}, pending
		}
		return struct{}{}, nil
	}, backoff.WithMaxElapsedTime(readyLimit))
	if errors.Is(err, pending) {
		return got, nil
	}
	return got, err
}

// runtime returns a VM with a fresh token, and Google's time. It returns ErrGone only if the
// account's list lacks the VM too: 404 is also the answer to a call that the API no longer has.
func (b *Backend) runtime(ctx context.Context, id string) (runtimeResource, time.Time, error) {
	if err := checkID(id); err != nil {
		return runtimeResource{}, time.Time{}, err
	}
	var found runtimeResource
	date, err := b.do(ctx, call{doing: fmt.Sprintf("look up VM %q", id), method: http.MethodGet, path: "/v1beta/runtimes/" + id}, &found)
	switch {
	case errors.Is(err, errNotFound):
		err = b.missing(ctx, id, err)
	case err == nil && found.Name != "runtimes/"+id:
		err = fmt.Errorf("look up VM %q: Google answered with another VM", id)
	}
	return found, date, err
}

// missing returns ErrGone for a VM that a lookup did not find if it is not listed either.
func (b *Backend) missing(ctx context.Context, id string, notFound error) error {
	all, err := b.List(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("%v; whether the VM still exists is unknown: %v", notFound, err)
	case slices.ContainsFunc(all, func(m vm.Machine) bool { return m.ID == id }):
		return fmt.Errorf("%w; the VM is still listed: try again in a minute", notFound)
	}
	return fmt.Errorf("%w: %q", vm.ErrGone, id)
}

// List implements vm.Backend.
func (b *Backend) List(ctx context.Context) ([]vm.Machine, error) {
	const doing = "list the account's VMs"
	all, token := []vm.Machine{}, ""
	for range maxPages {
		query := url.Values{}
		if token != "" {
			query.Set("pageToken", token)
		}
		var page struct {
			Runtimes []runtimeResource `json:"runtimes"`
			Next     string            `json:"nextPageToken"`
		}
		if _, err := b.do(ctx, call{doing: doing, method: http.MethodGet, path: "/v1beta/runtimes", query: query}, &page); err != nil {
			return nil, err
		}
		for _, r := range page.Runtimes {
			all = append(all, r.machine())
		}
		if len(all) > vm.MaxMachines {
			return nil, fmt.Errorf("%s: there are more than %d", doing, vm.MaxMachines)
		}
		if page.Next == "" {
			return all, nil
		}
		token = page.Next
	}
	return nil, fmt.Errorf("%s: Google's list does not end after %d pages", doing, maxPages)
}

// Delete implements vm.Backend.
func (b *Backend) Delete(ctx context.Context, id string) error {
	if err := checkID(id); err != nil {
		return err
	}
	_, err := b.do(ctx, call{doing: fmt.Sprintf("stop VM %q", id), method: http.MethodDelete, path: "/v1beta/runtimes/" + id, query: url.Values{"allowMissing": {"true"}}}, nil)
	if err != nil && !errors.Is(err, errNotFound) {
		return err
	}
	b.forget(id)
	still := fmt.Errorf("stop VM %q: Google accepted that, but the VM still exists: look at `colab-relay vm list`, and stop it at https://colab.research.google.com if it stays", id)
	_, err = backoff.Retry(ctx, func() (struct{}, error) {
		switch _, _, err := b.runtime(ctx, id); {
		case gone(err):
			return struct{}{}, nil
		case err != nil && !errors.Is(err, errNotFound):
			return struct{}{}, backoff.Permanent(err)
		}
		return struct{}{}, still
	}, backoff.WithMaxElapsedTime(goneLimit))
	return err
}
