// Package vm starts, lists and stops Colab's VMs, and starts an executor on them.
//
// The work is done by a Backend: Google's own command line (vm/colabcli) or the official API
// (vm/colabapi). This package must not start a VM whose id is not on disk, must not put a
// secret into code, arguments or logs, and must not report a VM as stopped before it was seen
// to be gone. Start reading at Backend here, then Manager.
package vm

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"colabrelay/shared/keep"
	"colabrelay/shared/lazy"
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
	Accelerator string // one of Accelerators, or CPU
	HighRAM     bool
}

// Machine is a VM as the backend reports it. Its texts are checked by the Manager, not by
// the backend.
type Machine struct {
	ID    string
	Spec  Spec
	Ready bool // Upload and Exec work
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
	Create(ctx context.Context, id string, s Spec) error
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
	// Proxy returns the base URL of the VM's port, without a path.
	Proxy(ctx context.Context, id string, port int) (baseURL string, err error)
	// Transport returns what adds to requests for such URLs of the VM what the proxy demands, and
	// renews it. It opens nothing before the first request.
	Transport(id string) http.RoundTripper
}

// CPU stands for no accelerator.
const CPU = "CPU"

// Accelerators are the ones that Colab names, from the smallest GPU to the largest, then TPUs.
var Accelerators = []string{"T4", "L4", "G4", "A100", "H100", "V5E1", "V6E1"}

// idPattern matches the ids of VMs that a relay started.
var idPattern = lazy.Regexp(`^colab-relay-[0-9a-f]{16}$`)

// NewID returns the id of a new VM: lower-case letters, digits and dashes, 28 characters.
func NewID() string {
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails
	return "colab-relay-" + hex.EncodeToString(random[:])
}

// ParseAccelerators reads accelerators that are separated by commas, in the order in which they
// are tried. An empty text is a VM without an accelerator. CPU is tried only where the text
// names it: whoever asks for a GPU gets a GPU or an error.
func ParseAccelerators(text string) ([]string, error) {
	if strings.TrimSpace(text) == "" {
		return []string{CPU}, nil
	}
	var accelerators []string
	for name := range strings.SplitSeq(text, ",") {
		name = strings.ToUpper(strings.TrimSpace(name))
		if name != CPU && !slices.Contains(Accelerators, name) {
			return nil, fmt.Errorf("unknown accelerator %q: use some of %s and %s, separated by commas", shownID(name), strings.Join(Accelerators, ", "), CPU)
		}
		if !slices.Contains(accelerators, name) {
			accelerators = append(accelerators, name)
		}
	}
	return accelerators, nil
}

// String names a kind of VM for people.
func (s Spec) String() string {
	if s.HighRAM {
		return s.Accelerator + " with high RAM"
	}
	return s.Accelerator
}

// Rules is what people must read before they let the relay start VMs. docs/rules.md contains the
// same text, and a test compares them.
const Rules = `The relay can start and stop Colab VMs with your Google account. Read this first:

- Google's rules. Colab's FAQ lists what it forbids to users without a positive balance of compute units: remote control of a VM, such as by SSH, and using a VM mainly without the notebook page. Using an executor from your laptop is remote control. For all users, paid or not, the FAQ forbids connections to remote proxies; whether a tunnel such as ngrok or cloudflared counts as one is not said. (Read in the FAQ in October 2026; the FAQ may have changed. Decide for yourself whether your use is allowed.)
- Your account is at risk. Users have reported that Google blocked their accounts for forbidden use of Colab (googlecolab/colabtools, issues 5562 and 6035). How Google detects such use is not known. Do not use an account that you cannot afford to lose.
- VMs end. Google may end a VM at any time, and everything on it is lost. The published limits are about 12 hours without a subscription and up to 24 hours with Colab Pro+. When an idle VM ends is not published.
- Money. A VM with a paid accelerator uses compute units from its start until it is stopped, also while nothing runs on it. The relay does not stop VMs by itself: ` + "`colab-relay vm list`" + ` shows what runs, and ` + "`colab-relay vm down`" + ` stops it.
- What the relay does. It keeps a VM alive only while code runs there, for at most 24 hours per VM. For that it sends one small request every 5 minutes; with Google's command line, it runs a comment in the VM's Jupyter kernel. It does not imitate a user at the page. The relay uses Google's own command line, or Google's official API, and no private interfaces. Google's command line itself uses interfaces that Google has not documented.
- What was not tested. Both ways were tested against imitations on one computer, never against Google's servers.`

// Errors of backends. For ErrNoneFree and ErrNotEligible the next accelerator is tried.
// ErrQuota, ErrDenied and ErrTooMany end the attempt.
var (
	ErrNoneFree    = errors.New("no VM of this kind is free")
	ErrNotEligible = errors.New("this account may not start a VM of this kind")
	ErrQuota       = errors.New("the account's usage limit is reached")
	ErrDenied      = errors.New("this account is not allowed to start VMs")
	ErrTooMany     = errors.New("the account has reached its limit of running VMs")
	ErrNotLoggedIn = errors.New("not logged in to Google")
	ErrExists      = errors.New("a VM with this id exists already")
	ErrGone        = errors.New("the VM does not exist")
)

// Errors of the Manager.
var (
	ErrNotEnabled   = errors.New("starting VMs is not enabled on this computer")
	ErrUnknown      = errors.New("unknown VM")
	ErrNotOurs      = errors.New("this computer did not start the VM")
	ErrNameTaken    = errors.New("the name is in use")
	ErrOther        = errors.New("a VM of another kind runs under this name")
	ErrTooManyKept  = errors.New("too many VMs are on record")
	ErrNoTunnel     = errors.New("no way to reach the VM's executor is set up")
	ErrLaunch       = errors.New("the executor is not running on the VM")
	ErrUnreachable  = errors.New("the VM's executor does not answer")
	ErrNotConfirmed = errors.New("it is not certain yet that the VM is gone")
	ErrBadRequest   = errors.New("wrong argument")
	ErrInterrupted  = errors.New("the VM may exist")
	ErrStopped      = errors.New("the VM is being stopped")
)

// StartingError means that the caller stopped waiting. The start continues as long as this
// process runs; the same request waits for it again.
type StartingError struct {
	Name, Step string
}

func (e *StartingError) Error() string {
	return fmt.Sprintf("VM %q is still starting: %s", e.Name, e.Step)
}

// ExecError is an exception of the code that Exec ran.
type ExecError struct {
	Name  string // the exception's class
	Value string // its text, clipped by the backend to 1,000 characters
}

func (e *ExecError) Error() string {
	return fmt.Sprintf("the code on the VM raised %s: %s", e.Name, e.Value)
}

// Login says that a person has read the rules and which backend starts VMs. It contains no
// credentials: each backend keeps its own.
type Login struct {
	Backend  string    `json:"backend"`
	Accepted time.Time `json:"accepted"` // when the person accepted Rules
}

func loginFile(dir string) keep.File[Login] {
	return keep.File[Login]{Path: filepath.Join(dir, "login.json"), What: "the record of the program that starts VMs", Max: 64 << 10, Check: (*Login).check}
}

func (l *Login) check() error {
	if l.Backend == "" {
		return errors.New("it names no program")
	}
	return nil
}

// LoadLogin returns what SaveLogin stored in the folder, or ErrNotEnabled.
func LoadLogin(dir string) (Login, error) {
	l, err := loginFile(dir).Read()
	switch {
	case err != nil:
		return Login{}, fmt.Errorf("%w: %w", ErrNotEnabled, err)
	case l.Backend == "":
		return Login{}, ErrNotEnabled
	}
	return l, nil
}

// SaveLogin stores a login, readable by this user only. A damaged one is kept under another name.
func SaveLogin(dir string, l Login) error {
	_, err := loginFile(dir).Change(func(kept *Login) error {
		*kept = l
		return nil
	})
	return err
}
