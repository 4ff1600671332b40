package vm

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"colabrelay/relay/pairing"
	"colabrelay/relay/plain"
	"colabrelay/shared/auth"
)

const (
	// watchEvery is how often a start looks whether somebody stops the VM.
	watchEvery = 300 * time.Millisecond
	// maxKeyIDs bounds the secrets of a VM that are remembered. Each start of its executor has one.
	maxKeyIDs = 8
)

// creation is the start of one VM, from the request for an accelerator to its pairing.
type creation struct {
	*Manager
	b       Backend
	rec     Record // as on disk
	removed bool   // from disk
	request Request
	say     func(string)
}

// remove forgets the VM, which does not exist, and its runtime.
func (a *creation) remove() error {
	a.removed = true
	return errors.Join(a.unpair(a.rec), a.store.remove(a.rec.ID))
}

// renew makes the record one of another VM, for which Google was not asked yet. The runtime of
// the old one stays until the new one replaces it.
func (a *creation) renew(accelerators []string) error {
	a.removed = true
	old := a.rec.ID
	err := a.update(func(r *Record) {
		*r = Record{ID: NewID(), Name: r.Name, Backend: r.Backend, Accelerators: accelerators, Accelerator: accelerators[0], HighRAM: r.HighRAM, Step: Asked, KeyIDs: r.KeyIDs}
	})
	_ = os.Remove(a.store.ownPath(old))
	return err
}

// start starts a VM or continues its start.
func (m *Manager) start(ctx context.Context, r Request, say func(string)) (VM, error) {
	b, err := m.open(r.Backend)
	if err != nil {
		return VM{}, err
	}
	if err := checkName(r.Name); err != nil {
		return VM{}, err
	}
	if err := m.checkProgram(ctx, r.Name); err != nil {
		return VM{}, err
	}
	for {
		rec, err := m.claim(r, b, say)
		if err != nil {
			return VM{}, err
		}
		got, err := m.ascend(ctx, &creation{Manager: m, b: b, rec: rec, request: r, say: say})
		if !errors.Is(err, errEnded) {
			return got, err
		}
		say("Colab has ended the earlier VM; starting another one")
	}
}

// checkProgram makes sure that there is an executor, before a VM is asked for that could not
// be used. Colab's VMs have processors of this kind.
func (m *Manager) checkProgram(ctx context.Context, name string) error {
	all, err := m.store.read()
	if err == nil && findName(all, name) != nil {
		return nil
	}
	_, err = m.cfg.Program(ctx, "amd64")
	return err
}

// errEnded means that the VM of a record was created and is gone.
var errEnded = errors.New("the VM was ended by Colab")

// ascend does the work while it owns the VM, unless somebody stops the VM.
func (m *Manager) ascend(ctx context.Context, a *creation) (VM, error) {
	if m.store.isOwned(a.rec.ID) {
		a.say("another process of the relay works on this VM; waiting for it")
	}
	release, err := m.store.own(ctx, a.rec.ID)
	if err != nil {
		return VM{}, err
	}
	defer release()
	if err := a.update(func(*Record) {}); err != nil { // what the other process has done
		return VM{}, err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer m.watch(ctx, a.rec.ID, stop)()
	err = a.up(ctx)
	if err != nil && !a.removed && context.Cause(ctx) == ErrStopped {
		err = ErrStopped
	}
	if errors.Is(err, errEnded) {
		return VM{}, errors.Join(err, a.renew(a.request.Accelerators))
	}
	if err != nil {
		_ = a.update(func(r *Record) { r.Failure = shown(err) }) // it only explains
		return VM{}, a.failed(err)
	}
	return m.status(a.rec), nil
}

// failed says what the start's failure means for the VM.
func (a *creation) failed(err error) error {
	err = fmt.Errorf("start VM %q: %w", a.rec.Name, err)
	if a.removed || errors.Is(err, ErrStopped) || a.rec.Asked.IsZero() {
		return err
	}
	return fmt.Errorf("%w; VM %s may run, and use compute units, until it is stopped", err, a.rec.ID)
}

// watch stops ctx when somebody asks for the VM's end.
func (m *Manager) watch(ctx context.Context, id string, stop context.CancelCauseFunc) (end func()) {
	every := time.NewTicker(watchEvery)
	done := make(chan struct{})
	m.work.Go(func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-every.C:
			}
			if all, err := m.store.read(); err == nil {
				if r := find(all, id); r == nil || r.Step == Stopping {
					stop(ErrStopped)
				}
			}
		}
	})
	return func() { stop(nil); <-done; every.Stop() }
}

// claim returns the record of that name, and makes one if there is none: from then on the VM
// is listed.
func (m *Manager) claim(r Request, b Backend, say func(string)) (rec Record, err error) {
	damage, err := m.store.change(func(all []Record) ([]Record, error) {
		if known := findName(all, r.Name); known != nil {
			rec = *known
			return all, joins(rec, r, b.Name())
		}
		if len(all) >= MaxRecords {
			return nil, fmt.Errorf("%w: %d", ErrTooManyKept, len(all))
		}
		if err := errors.Join(m.nameIsFree(r.Name), m.mayReach(b, r.Way)); err != nil {
			return nil, err
		}
		rec = Record{ID: NewID(), Name: r.Name, Backend: b.Name(), Accelerators: r.Accelerators, Accelerator: r.Accelerators[0], HighRAM: r.HighRAM, Step: Asked}
		return append(all, rec), nil
	})
	if damage != nil {
		say(damage.Error())
		m.cfg.Log.Warn("the record of VMs was damaged", "err", damage)
	}
	return rec, err
}

// joins returns an error if the request is not for the VM of this record.
func joins(rec Record, r Request, backend string) error {
	switch {
	case rec.Step == Stopping:
		return fmt.Errorf("%w: %q", ErrStopped, rec.Name)
	case rec.Backend != backend:
		return fmt.Errorf("%w: %q was started with the backend %s", ErrOther, rec.Name, rec.Backend)
	case rec.HighRAM != r.HighRAM || rec.Step != Asked && !slices.Contains(r.Accelerators, rec.Accelerator):
		return fmt.Errorf("%w: %q has %s", ErrOther, rec.Name, spec(rec.Accelerator, rec.HighRAM))
	case rec.Step == Asked && !slices.Equal(rec.Accelerators, r.Accelerators):
		return fmt.Errorf("%w: %q is being started as %s", ErrOther, rec.Name, acceleratorsText(rec.Accelerators, rec.HighRAM))
	}
	return nil
}

// checkName returns an error for a name that no VM can have.
func checkName(name string) error {
	if idPattern.MatchString(name) {
		return fmt.Errorf("%w %q: it has the form of a VM's id", pairing.ErrBadName, name)
	}
	return pairing.CheckName(name)
}

// nameIsFree returns an error if a runtime of that name is paired with another executor.
func (m *Manager) nameIsFree(name string) error {
	switch _, err := m.cfg.Pairings.Get(name); {
	case errors.Is(err, pairing.ErrNotPaired):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("%w: this computer is already paired with a runtime named %q", ErrNameTaken, name)
}

// update changes the record on disk and this copy of it.
func (a *creation) update(f func(*Record)) error {
	return a.store.update(a.rec.ID, func(r *Record) {
		f(r)
		a.rec = *r
	})
}

// up goes on from the step on record.
func (a *creation) up(ctx context.Context) error {
	if a.rec.Step == Asked {
		if err := a.askInTurn(ctx); err != nil {
			return err
		}
	}
	if err := a.awaitReady(ctx); err != nil {
		return err
	}
	if a.rec.Step == Paired {
		if done, err := a.check(ctx); done || err != nil {
			return err
		}
	}
	return a.launch(ctx)
}

// awaitReady waits until the VM can be used. Two lists in a row without the VM prove that it has
// ended: after one alone, a second VM would be started beside it if the service only omitted it.
func (a *creation) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, a.limits.ready, fmt.Errorf("the VM was created, but was not ready within %s", a.limits.ready))
	defer cancel()
	every := time.NewTicker(2 * time.Second)
	defer every.Stop()
	for missed := 0; ; {
		all, err := machines(ctx, a.b)
		if err != nil {
			return err
		}
		found, there := machineWith(all, a.rec.ID)
		if missed++; there || time.Since(a.rec.Asked) <= a.limits.appear {
			missed = 0
		}
		switch {
		case found.Ready:
			return nil
		case missed == 2:
			return errEnded
		}
		a.say("waiting until the VM is ready")
		select {
		case <-every.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// LaunchSource is the source of launch.py.
//
//go:embed launch.py
var LaunchSource string

const (
	// callLimit bounds a call of launch.py, beside what it waits for itself.
	callLimit = 90 * time.Second
	// pollWait is how long one call waits on the VM for the executor.
	pollWait = 15 * time.Second
	// executorLimit bounds the time from the executor's start until it is ready.
	executorLimit = 3 * time.Minute
)

// vmReport is what launch.py's prepare says.
type vmReport struct {
	Folder      string `json:"folder"`
	Machine     string `json:"machine"`
	SHA256      string `json:"sha256"` // of the executor that is there; empty for none
	Cloudflared bool   `json:"cloudflared"`
}

// executorReport is what launch.py's poll says.
type executorReport struct {
	Running bool           `json:"running"`
	Ready   *readyExecutor `json:"ready"`
	Log     string         `json:"log"`
}

type readyExecutor struct {
	URL        string `json:"url"`
	LocalURL   string `json:"local_url"`
	InstanceID string `json:"instance_id"`
}

// call calls a function of launch.py on the VM. The arguments are no secrets: kernels keep
// the code that they run.
func (a *creation) call(ctx context.Context, report any, function string, arguments ...any) error {
	marker := "colab-relay " + rand.Text() + " "
	given, err := json.Marshal(arguments)
	if err != nil {
		return err
	}
	var code strings.Builder
	code.WriteString("functions = {'__name__': 'colab_relay_launch'}\n")
	fmt.Fprintf(&code, "exec(compile(%s, 'colab_relay_launch', 'exec'), functions)\n", pythonString(LaunchSource))
	fmt.Fprintf(&code, "functions['call'](%s, %s, %s)\n", pythonString(marker), pythonString(function), pythonString(string(given)))
	out, err := a.b.Exec(ctx, a.rec.ID, code.String(), callLimit)
	if err != nil {
		return fmt.Errorf("%s on the VM: %w", function, err)
	}
	_, text, found := strings.Cut(out, marker)
	if text, _, _ = strings.Cut(text, "\n"); !found || json.Unmarshal([]byte(text), report) != nil {
		return fmt.Errorf("%s on the VM: its answer is not as expected", function)
	}
	return nil
}

// pythonString returns a literal of Python: JSON's are.
func pythonString(s string) string {
	text, _ := json.Marshal(s) // a string can always be encoded
	return string(text)
}

// architectures are Go's names of the processors that Linux names so.
var architectures = map[string]string{"x86_64": "amd64", "aarch64": "arm64"}

// Architecture returns Go's name of a processor for which there are executors, else "".
func Architecture(machine string) string { return architectures[machine] }

// launch brings the executor onto the VM, starts it, and pairs it.
func (a *creation) launch(ctx context.Context) error {
	if err := a.update(func(r *Record) { r.Step = Created }); err != nil { // no longer Paired
		return err
	}
	a.say("preparing the VM")
	var v vmReport
	if err := a.call(ctx, &v, "prepare", a.rec.ID); err != nil {
		return err
	}
	if !strings.HasPrefix(v.Folder, "/") || !strings.HasSuffix(v.Folder, "/"+a.rec.ID) {
		return fmt.Errorf("prepare on the VM: the folder %q is not as expected", plain.Line(v.Folder))
	}
	ways, err := a.ways(a.b, a.request.Way, v.Cloudflared)
	if err != nil {
		return err
	}
	program, err := a.upload(ctx, v)
	if err != nil {
		return err
	}
	var failures []error
	for _, w := range ways {
		err := a.try(ctx, v, program, w)
		if err == nil || !errors.Is(err, ErrUnreachable) && !errors.Is(err, ErrLaunch) {
			return err
		}
		a.say(fmt.Sprintf("not reached by %s: %s", w, shown(err)))
		failures = append(failures, fmt.Errorf("by %s: %w", w, err))
	}
	return errors.Join(failures...)
}

// upload copies the executor to the VM, unless it is there. It returns its digest.
func (a *creation) upload(ctx context.Context, v vmReport) (sha256 string, err error) {
	arch := Architecture(v.Machine)
	if arch == "" {
		return "", fmt.Errorf("%w: there is no executor for the VM's processor %q", ErrLaunch, plain.Line(v.Machine))
	}
	program, err := a.cfg.Program(ctx, arch)
	if err != nil || program.SHA256 == v.SHA256 {
		return program.SHA256, err
	}
	a.say("fetching the executor")
	content, err := program.Content(ctx)
	if err != nil {
		return "", err
	}
	a.say(fmt.Sprintf("uploading the executor, %d MB", (len(content)+1e6-1)/1e6))
	if err := a.b.Upload(ctx, a.rec.ID, v.Folder+"/upload", content); err != nil {
		return "", fmt.Errorf("upload the executor: %w", err)
	}
	return program.SHA256, nil
}

// try starts the executor so that it can be reached in this way, and pairs it if it answers.
func (a *creation) try(ctx context.Context, v vmReport, sha256 string, w Way) error {
	secret := auth.GenerateSecret()
	err := a.update(func(r *Record) {
		r.KeyIDs = append(r.KeyIDs, secret.KeyID())
		r.KeyIDs = slices.Clone(r.KeyIDs[max(0, len(r.KeyIDs)-maxKeyIDs):])
	})
	if err != nil {
		return err
	}
	a.say("starting the executor, to be reached by " + string(w))
	settings := map[string]string{"EXECUTOR_SECRET": secret.Reveal()}
	if w == Ngrok {
		settings["NGROK_AUTHTOKEN"] = a.cfg.NgrokToken
	}
	text, err := json.Marshal(settings)
	if err != nil {
		return err
	}
	if err := a.b.Upload(ctx, a.rec.ID, v.Folder+"/settings/start.json", text); err != nil {
		return fmt.Errorf("upload the executor's settings: %w", err)
	}
	var started struct{ PID int }
	if err := a.call(ctx, &started, "start", a.rec.ID, sha256, a.flags(w)); err != nil {
		if raised, ok := errors.AsType[*ExecError](err); ok {
			err = fmt.Errorf("%w: %s", ErrLaunch, a.redacted(raised.Error(), secret))
		}
		return err
	}
	ready, err := a.awaitExecutor(ctx, secret)
	if err != nil {
		return err
	}
	return a.reach(ctx, w, ready, secret)
}

// awaitExecutor waits until the executor is ready.
func (a *creation) awaitExecutor(ctx context.Context, secret auth.Secret) (readyExecutor, error) {
	a.say("waiting for the executor")
	pace := time.NewTicker(time.Second) // in case the VM answers at once
	defer pace.Stop()
	for deadline := time.Now().Add(executorLimit); ; {
		var e executorReport
		if err := a.call(ctx, &e, "poll", a.rec.ID, pollWait.Seconds()); err != nil {
			return readyExecutor{}, err
		}
		switch {
		case e.Ready != nil && e.Running:
			return *e.Ready, nil
		case !e.Running:
			return readyExecutor{}, fmt.Errorf("%w: it ended; its last output: %s", ErrLaunch, a.redacted(e.Log, secret))
		case time.Now().After(deadline):
			return readyExecutor{}, fmt.Errorf("%w: it was not ready after %s; its last output: %s", ErrLaunch, executorLimit, a.redacted(e.Log, secret))
		}
		select {
		case <-pace.C:
		case <-ctx.Done():
			return readyExecutor{}, ctx.Err()
		}
	}
}

// redacted makes text of the VM safe to show.
func (a *creation) redacted(text string, secret auth.Secret) string {
	text = strings.ReplaceAll(text, secret.Reveal(), "[secret]")
	if a.cfg.NgrokToken != "" {
		text = strings.ReplaceAll(text, a.cfg.NgrokToken, "[token]")
	}
	return plain.Line(text)
}
