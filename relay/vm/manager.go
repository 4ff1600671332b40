package vm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/pairing"
	"colabrelay/relay/plain"
	"colabrelay/shared/keep"
)

// DefaultName is the name of a VM, and of its runtime, that is started without one.
const DefaultName = "vm"

// Config is what a Manager needs.
type Config struct {
	Dir      string // folder of the record and of the login
	Pairings *pairing.Store
	// Open returns the backend of that name.
	Open func(name string) (Backend, error)
	// Program returns the executor for a VM's processor, amd64 or arm64.
	Program     func(ctx context.Context, arch string) (Program, error)
	NgrokToken  string // may be empty
	NgrokDomain string // may be empty
	Log         *slog.Logger
}

// Manager starts, lists and stops VMs. Its methods are safe for concurrent use, also by
// Managers of other processes with the same folder.
type Manager struct {
	cfg    Config
	store  store
	limits limits
	starts *keep.Flights[VM] // by name

	mu sync.Mutex // guards the look for a start with another request, before one joins it
}

// limits are how long to wait for something.
type limits struct {
	ready  time.Duration // for a VM that was created
	appear time.Duration // after a VM was asked for, until its absence in Google's list counts
	// For an answer of an executor that is ready. A new tunnel's name takes seconds to be known
	// everywhere; the proxy answers at once or never.
	proxy, tunnel time.Duration
	check         time.Duration // for an answer of an executor that was paired before
}

var usual = limits{ready: 3 * time.Minute, appear: 2 * time.Minute, proxy: 20 * time.Second, tunnel: time.Minute, check: client.ReachLimit}

// resultLimit is how long the result of a start waits for its caller. Later it may no longer be true.
const resultLimit = 2 * time.Minute

// New returns a Manager. It starts nothing. A caller must Close it.
func New(cfg Config) *Manager {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Log = cfg.Log.With("component", "vm")
	return &Manager{cfg: cfg, store: newStore(cfg.Dir), limits: usual, starts: keep.NewFlights[VM](resultLimit)}
}

// Close ends the starts in progress; the record has all that was started. It returns when
// they have ended.
func (m *Manager) Close() { m.starts.Close(errors.New("the relay is ending")) }

// Request is what to start.
type Request struct {
	Name         string   // of the VM and its runtime; empty for DefaultName
	Accelerators []string // as ParseAccelerators returns it
	HighRAM      bool
	Backend      string // empty for the one of the login
	Way          Way    // empty for the first that works
}

// Up starts a VM with an executor and pairs it, or continues a start that a killed relay
// left. If ctx ends before, it returns a *StartingError, and the start goes on: the same
// request joins it, and gets its result even if it ended meanwhile. It calls say with each step.
func (m *Manager) Up(ctx context.Context, r Request, say func(step string)) (VM, error) {
	if r.Name == "" {
		r.Name = DefaultName
	}
	if len(r.Accelerators) == 0 {
		r.Accelerators = []string{CPU}
	}
	started, err := m.join(r)
	if err != nil {
		return VM{}, err
	}
	got, err := started.Wait(ctx, say)
	if errors.Is(err, keep.ErrUnderWay) {
		err = &StartingError{Name: r.Name, Step: started.Step()}
	}
	return got, err
}

// join joins the start of that name, and begins it if there is none.
func (m *Manager) join(r Request) (*keep.Flight[VM], error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	about, _ := m.starts.Find(r.Name)
	if before, ok := about.(Request); ok && (!slices.Equal(before.Accelerators, r.Accelerators) || before.HighRAM != r.HighRAM) {
		return nil, fmt.Errorf("%w: %q is being started as %s", ErrOther, r.Name, Spec{strings.Join(before.Accelerators, ","), before.HighRAM})
	}
	return m.starts.Join(r.Name, r, func(ctx context.Context, say func(string)) (VM, error) {
		got, err := m.start(ctx, r, say)
		if err != nil {
			m.cfg.Log.Warn("a VM was not started", "name", r.Name, "err", err)
		}
		return got, err
	})
}

// open returns a backend; the one of the login if name is empty.
func (m *Manager) open(name string) (Backend, error) {
	login, err := LoadLogin(m.cfg.Dir)
	if err != nil {
		return nil, err
	}
	if name == "" {
		name = login.Backend
	}
	return m.cfg.Open(name)
}

// Enabled returns ErrNotEnabled unless a person has read the rules and logged in.
func (m *Manager) Enabled() error {
	_, err := LoadLogin(m.cfg.Dir)
	return err
}

// machines returns the VMs that a backend sees, within bounds.
func machines(ctx context.Context, b Backend) ([]Machine, error) {
	all, err := b.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the VMs: %w", err)
	}
	if len(all) > MaxMachines {
		return nil, fmt.Errorf("list the VMs: the service names %d, over %d", len(all), MaxMachines)
	}
	return all, nil
}

// machineWith returns the VM with that id.
func machineWith(all []Machine, id string) (Machine, bool) {
	i := slices.IndexFunc(all, func(m Machine) bool { return m.ID == id })
	if i < 0 {
		return Machine{}, false
	}
	return all[i], true
}

// shown makes an error's text safe and short enough to keep.
func shown(err error) string { return plain.Clip(err.Error(), maxFailure) }

// store is the record of VMs in a folder. Any number of programs may use it at once.
type store struct {
	dir  string
	file keep.File[recordFile]
}

func newStore(dir string) store {
	return store{dir, keep.File[recordFile]{
		Path: filepath.Join(dir, "vms.json"), What: "the record of VMs", Max: maxRecordFile, Version: recordVersion, Check: (*recordFile).check,
	}}
}

// read returns all records. A damaged file is ErrDamaged; the next change renames it.
func (s store) read() ([]Record, error) {
	f, err := s.file.Read()
	return f.VMs, err
}

// change replaces the records by what f makes of them; an error of f changes nothing. A
// damaged file is renamed first, and a new record begins: damage then says so.
func (s store) change(f func([]Record) ([]Record, error)) (damage, err error) {
	damage, err = s.file.Change(func(r *recordFile) (err error) {
		leaveFuture(r.VMs)
		r.Version = recordVersion
		r.VMs, err = f(r.VMs)
		return err
	})
	if damage != nil {
		damage = fmt.Errorf("%w: check the VMs of your Google account with `colab-relay vm list`", damage)
	}
	return damage, err
}

// own reserves a VM for the caller until it calls release or its process ends: only the owner
// may start or stop the VM. It waits as long as ctx lasts.
func (s store) own(ctx context.Context, id string) (release func(), err error) {
	return keep.Lock(ctx, s.ownPath(id))
}

func (s store) ownPath(id string) string { return filepath.Join(s.dir, id+".lock") }

// isOwned reports whether some relay process starts or stops the VM now.
func (s store) isOwned(id string) bool { return keep.IsLocked(s.ownPath(id)) }

// update changes one record. It returns ErrStopped if somebody asked for the VM's end, or
// its record is gone.
func (s store) update(id string, f func(*Record)) error {
	_, err := s.change(func(all []Record) ([]Record, error) {
		r := find(all, id)
		if r == nil || r.Step == Stopping {
			return nil, ErrStopped
		}
		f(r)
		return all, nil
	})
	return err
}

// remove deletes a record, and the file of its lock: ids are never used again.
func (s store) remove(id string) error {
	_, err := s.change(func(all []Record) ([]Record, error) {
		return slices.DeleteFunc(all, func(r Record) bool { return r.ID == id }), nil
	})
	_ = os.Remove(s.ownPath(id))
	return err
}

// Step is how far the start of a VM has come. It is on disk before what follows begins, which
// can be done again.
type Step string

// Steps.
const (
	Asked    Step = "asked"    // Google was asked for the VM, or is about to be
	Created  Step = "created"  // the VM exists; so does that of a record with any other step
	Paired   Step = "paired"   // the runtime is stored under the VM's name
	Stopping Step = "stopping" // somebody asked for its end
)

// Record is what this computer knows of a VM that it started. It contains no secret.
type Record struct {
	ID           string    `json:"id"`
	Name         string    `json:"name"` // of the runtime
	Backend      string    `json:"backend"`
	Accelerators []string  `json:"accelerators"` // accelerators in the order in which they are tried
	Accelerator  string    `json:"accelerator"`  // the one that was asked for last, CPU for none
	HighRAM      bool      `json:"high_ram,omitempty"`
	Step         Step      `json:"step"`
	Asked        time.Time `json:"asked"`                 // when Google was asked for the VM last; zero before that
	Touched      time.Time `json:"touched,omitzero"`      // when a keep-alive was last sent for it
	KeyIDs       []string  `json:"key_ids,omitempty"`     // of the executor's secrets, by which its pairing is recognised
	Via          Way       `json:"via,omitempty"`         // how the executor is reached
	Unconfirmed  bool      `json:"unconfirmed,omitempty"` // it is stopped before it was known to exist
	Failure      string    `json:"failure,omitempty"`     // why the last start ended
}

const (
	recordVersion = 1
	maxRecordFile = 1 << 20 // bytes
	// MaxRecords bounds the VMs of which this computer keeps a record.
	MaxRecords = 1000
	// maxFailure bounds the text of an error that is kept, in characters.
	maxFailure = 500
)

// ErrDamaged means that the record of VMs cannot be read. It is renamed, never deleted.
var ErrDamaged = keep.ErrDamaged

// recordFile is vms.json.
type recordFile struct {
	Version int      `json:"version"`
	VMs     []Record `json:"vms"`
}

// check says why a file that was read cannot be used.
func (f *recordFile) check() error {
	for _, r := range f.VMs {
		if !idPattern().MatchString(r.ID) || r.Step == "" || checkName(r.Name) != nil || r.Backend == "" || len(r.Accelerators) == 0 {
			return fmt.Errorf("the VM %q", shownID(r.ID))
		}
	}
	return nil
}

// leaveFuture corrects times that a clock which was ahead has written. Otherwise the VM would
// seem just asked for until then, and could not be confirmed as gone.
func leaveFuture(all []Record) {
	now := time.Now().UTC()
	for i, r := range all {
		if r.Asked.After(now) {
			all[i].Asked = now
		}
	}
}

// find returns the record with that id or name, nil if there is none. No name has the form of an id.
func find(all []Record, idOrName string) *Record {
	i := slices.IndexFunc(all, func(r Record) bool { return r.ID == idOrName || r.Name == idOrName })
	if i < 0 {
		return nil
	}
	return &all[i]
}
