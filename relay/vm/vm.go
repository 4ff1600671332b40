// Package vm starts, lists and stops Colab's VMs, and starts an executor on them.
//
// The work is done by a Backend: Google's own command line (vm/colabcli) or the official API
// (vm/colabapi). This package must not start a VM whose id is not on disk, must not put a
// secret into code, arguments or logs, and must not report a VM as stopped before it was seen
// to be gone. Start reading at Backend here, then Manager.
package vm

import (
	"context"
	"net/http"
	"time"
)

// Bounds that every backend keeps.
const (
	// MaxOutput bounds the output of Exec, in bytes. The beginning is dropped.
	MaxOutput = 1 << 20
	// MaxMachines bounds the answer of List. A backend returns an error if there are more,
	// because a part of the list would make VMs look gone.
	MaxMachines = 1000
	// MaxUpload bounds the content of Upload, in bytes; Colab's limit is about 384 MiB.
	MaxUpload = 256 << 20
)

// Spec describes a VM to start.
type Spec struct {
	Accelerator string // one of Accelerators; empty for a VM without one
	HighRAM     bool
}

// Machine is a VM as the backend reports it. Its texts are checked by the Manager, not by
// the backend.
type Machine struct {
	ID      string
	Spec    Spec
	Expires time.Time // zero if unknown
	Ready   bool      // Upload and Exec work
}

// Backend starts and uses VMs. Every method ends soon after its ctx. All backends pass
// vmtest.Suite.
//
// Errors wrap one of this package's errors where one fits, and their texts say what Google
// answered, without tokens. A call that reaches no service, or whose answer makes no sense,
// returns another error: it never reports ErrGone, ErrExists or an empty list without proof.
type Backend interface {
	// Name is "cli" or "api".
	Name() string
	// Specs returns what the account may start; nil if that is unknown.
	Specs(ctx context.Context) ([]Spec, error)
	// Create starts a VM with an id of NewID's form, and returns once it exists. If it
	// returns ErrExists, that VM exists already. After another error the VM may exist.
	Create(ctx context.Context, id string, s Spec) (Machine, error)
	// List returns all VMs of the account that the backend can see.
	List(ctx context.Context) ([]Machine, error)
	// Delete stops a VM and returns after it was seen to be gone. It is no error if the VM
	// was gone before.
	Delete(ctx context.Context, id string) error
	// Upload creates or replaces a file on the VM. remotePath is absolute and its folder exists.
	Upload(ctx context.Context, id, remotePath string, content []byte) error
	// Exec runs Python code in a Jupyter kernel of the VM and returns what it printed, at most
	// MaxOutput bytes. An exception is an *ExecError. After timeout the code may still run,
	// and the error wraps context.DeadlineExceeded.
	Exec(ctx context.Context, id, code string, timeout time.Duration) (output string, err error)
	// Touch sends one keep-alive.
	Touch(ctx context.Context, id string) error
}

// Proxied is a Backend whose VMs' ports can be reached through Google's proxy. Whether the
// proxy really passes our requests on is only known once an executor has answered through it.
type Proxied interface {
	// Proxy returns the base URL of the VM's port, without a path, and a transport that adds
	// what the proxy demands and renews it.
	Proxy(ctx context.Context, id string, port int) (baseURL string, rt http.RoundTripper, err error)
}
