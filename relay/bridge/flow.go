package bridge

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	bootstrap "colabrelay/colab-bootstrap"
	"colabrelay/relay/page"
	"colabrelay/relay/pairing"
	"colabrelay/shared/auth"
	"colabrelay/shared/enrollment"
)

const (
	// readyLimit is how long the page may take to run a first cell: a person may have to sign
	// in or to click "Run anyway", and the VM starts meanwhile.
	readyLimit = 300 * time.Second
	// reachLimit is how long a tunnel's new name may take until this computer resolves it.
	reachLimit = 60 * time.Second
)

// Steps, as callers read them.
const (
	stepReady  = `waiting until the notebook runs a first cell; the page may need a click on "Run anyway" or "Connect", or a sign-in, and a cell that runs there must end first`
	stepStart  = "the VM fetches the executor and starts it"
	stepTunnel = "the executor opens its tunnel"
	stepCheck  = "checking the connection to the executor"
)

// build is the work of a job.
func (b *Bridge) build(ctx context.Context, j *job) (paired Paired, err error) {
	release, err := b.cfg.Release(ctx)
	if err != nil {
		return paired, fmt.Errorf("%w: %w", ErrPrepare, err)
	}
	tunnel, err := b.cfg.Tunnel()
	if err != nil {
		return paired, fmt.Errorf("%w: %w", ErrPrepare, err)
	}
	look := b.lookForEarlier(ctx)
	defer look.end()
	if paired, found := b.besideStatusCell(ctx, j, look); found {
		return paired, nil
	}
	c := &cell{nb: j.nb}
	defer func() {
		if left := c.remove(); left != "" && err != nil {
			err = fmt.Errorf("%w; %s", err, left)
		} else if left != "" {
			paired.Notes = append(paired.Notes, "Note that "+left+".")
		}
	}()
	j.say(stepReady)
	output, err := ready(ctx, c)
	if err != nil {
		return paired, err
	}
	earlier := look.result()
	if found := onThisVM(output, earlier); found != nil {
		return b.already(ctx, j, found), nil
	}
	if _, err := b.nameFor(j.request.Name, earlier); err != nil {
		return paired, err
	}
	e, err := b.handOver(ctx, j, c, release, tunnel)
	if err != nil {
		return paired, err
	}
	if paired, err = b.save(e.runtime, j.request.Name, earlier); err == nil {
		b.last = started{instance: e.instance, job: e.offer.JobID()}
		paired.Notes = append(paired.Notes, b.statusNote(ctx, j))
	}
	return paired, err
}

// ready inserts the cell, waits until the page has run it, and returns what it printed.
func ready(ctx context.Context, c *cell) (output string, err error) {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails: it ends the program instead
	job := hex.EncodeToString(id[:])
	source, err := bootstrap.ReadyCell(job)
	if err == nil {
		err = c.insert(ctx, source+which)
	}
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, readyLimit, ErrNotReady)
	defer cancel()
	_, output, err = c.report(ctx, job, func(r bootstrap.Report) bool { return r.Ready })
	return output, err
}

// handover is one exchange of keys, by which an executor gets its secret. It survives the loss
// of a tab, because its executor waits on the VM, and ends with its offer.
type handover struct {
	offer    *enrollment.Offer
	made     time.Time       // by the wall clock
	sealed   string          // the grant; empty until the executor has shown its key
	runtime  pairing.Runtime // without a name; its URL is empty until the answer was checked
	instance string          // of the executor, from its answer
}

// handOver gets an executor started and returns it once it has answered a signed request. It
// continues the handover that a lost tab interrupted, unless that one's executor is gone.
func (b *Bridge) handOver(ctx context.Context, j *job, c *cell, release bootstrap.Release, tunnel Tunnel) (*handover, error) {
	if e := b.pending; e != nil {
		b.pending = nil
		if time.Since(e.made) < enrollment.Lifetime {
			if err := b.exchange(ctx, j, c, e, release, tunnel); !errors.Is(err, ErrCell) {
				return e, err
			}
		}
	}
	offer, err := enrollment.NewOffer()
	if err != nil {
		return nil, err
	}
	made := time.Now().Round(0) // the other clock stops while this computer sleeps
	e := &handover{offer: offer, made: made, runtime: pairing.Runtime{Secret: auth.GenerateSecret(), FromPage: true}}
	return e, b.exchange(ctx, j, c, e, release, tunnel)
}

// exchange does what is left of a handover.
func (b *Bridge) exchange(ctx context.Context, j *job, c *cell, e *handover, release bootstrap.Release, tunnel Tunnel) (err error) {
	defer func() {
		if errors.Is(err, page.ErrTabLost) {
			b.pending = e
		}
	}()
	ctx, cancel := context.WithDeadlineCause(ctx, e.made.Add(enrollment.Lifetime), ErrExpired)
	defer cancel()
	if e.sealed == "" {
		j.say(stepStart)
		if err := e.offerTo(ctx, c, release, tunnel); err != nil {
			return err
		}
	}
	j.say(stepTunnel)
	if err := e.finish(ctx, c); err != nil {
		return err
	}
	j.say(stepCheck)
	return b.reach(j, e)
}

// offerTo starts the executor and seals the grant to its key.
func (e *handover) offerTo(ctx context.Context, c *cell, release bootstrap.Release, tunnel Tunnel) error {
	start := bootstrap.Start{Job: e.offer.JobID(), RelayKey: e.offer.PublicKey(), Tunnel: bootstrap.TunnelSecrets}
	if tunnel.Token != "" {
		start.Tunnel = bootstrap.TunnelNgrok
	}
	source, err := bootstrap.EnrollStart(release, start)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrPrepare, err)
	}
	if err := c.change(ctx, source); err != nil {
		return err
	}
	report, _, err := c.report(ctx, start.Job, func(r bootstrap.Report) bool { return r.Key != "" })
	if err != nil {
		return err
	}
	grant, err := e.grant(report.Tunnel, tunnel)
	if err == nil {
		e.sealed, err = e.offer.Seal(report.Key, grant)
	}
	return refused(err)
}

// grant returns what the executor gets. The VM may choose the tunnel only if the relay has no
// token.
func (e *handover) grant(prepared string, tunnel Tunnel) (enrollment.Grant, error) {
	g := enrollment.Grant{Secret: e.runtime.Secret.Reveal(), Tunnel: prepared}
	switch {
	case prepared == bootstrap.TunnelNgrok && tunnel.Token != "":
		g.NgrokToken, g.Domain = tunnel.Token, tunnel.Domain
	case tunnel.Token != "" || prepared != bootstrap.TunnelNgrok && prepared != bootstrap.TunnelCloudflared:
		return g, fmt.Errorf("the VM prepared the tunnel %q, which it was not asked for", shown(prepared))
	}
	return g, nil
}

// finish hands over the grant and checks the executor's answer.
func (e *handover) finish(ctx context.Context, c *cell) error {
	source, err := bootstrap.EnrollFinish(e.offer.JobID(), e.sealed)
	if err != nil {
		return err
	}
	if err := c.change(ctx, source); err != nil {
		return err
	}
	report, _, err := c.report(ctx, e.offer.JobID(), func(r bootstrap.Report) bool { return r.Answer != nil })
	if err != nil {
		return err
	}
	if err := e.offer.Check(*report.Answer); err != nil {
		return refused(err)
	}
	e.runtime.URL, e.instance = report.Answer.URL, report.Answer.InstanceID
	return nil
}

// refused describes an error of package enrollment.
func refused(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, enrollment.ErrExpired):
		return ErrExpired
	}
	return fmt.Errorf("%w: %s", ErrNotGenuine, shown(err.Error()))
}

// reach proves that the executor answers with the secret. It needs no tab, so the loss of one
// does not end it.
func (b *Bridge) reach(j *job, e *handover) error {
	ctx, cancel := context.WithTimeout(j.ends, reachLimit)
	defer cancel()
	probed := e.runtime
	probed.Name = "new"
	instance, err := b.cfg.Reach(ctx, probed)
	switch {
	case err == nil && instance == e.instance:
		return nil // even if the relay ends now: the executor counts as used, and only e has its secret
	case j.ends.Err() != nil:
		return context.Cause(j.ends)
	case err != nil:
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return fmt.Errorf("%w: another executor answers at its address", ErrNotGenuine)
}

// statusWait is how long the page may take to refuse to run the status cell.
const statusWait = 3 * time.Second

// started is the executor that this Bridge started last.
type started struct {
	instance   string
	job        string
	statusCell string // id; empty if there is none
}

// What is said of the status cell.
const (
	noteOffer  = "No cell of the page runs, so Colab may count the page as idle and end the VM. To prevent that, call again with status_cell (or use --status-cell): it leaves a visible cell that runs as long as the executor; stopping it stops the executor. While it runs, the notebook's own cells wait, so run code on the executor then."
	noteStatus = "A cell at the end of the notebook now runs as long as the executor, so that Colab does not count the page as idle; stopping it stops the executor. While it runs, the notebook's own cells wait: run code on the executor."
	noteFailed = "The status cell could not be added, so Colab may count the page as idle and end the VM: "
)

// statusNote adds the status cell if the caller wants one, and returns a sentence about it.
func (b *Bridge) statusNote(ctx context.Context, j *job) string {
	if !j.request.StatusCell {
		return noteOffer
	}
	id, err := addStatusCell(ctx, j.nb, b.last.job)
	b.last.statusCell = id
	if err != nil {
		return noteFailed + err.Error() + "."
	}
	return noteStatus
}

// addStatusCell inserts the cell and runs it without waiting for its end.
func addStatusCell(ctx context.Context, nb Notebook, job string) (id string, err error) {
	source, err := bootstrap.StatusCell(job)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, editLimit, fmt.Errorf("%w: it did not insert one within %.0f s", ErrPage, editLimit.Seconds()))
	defer cancel()
	cells, err := nb.Cells(ctx, 0, -1, false)
	if err != nil {
		return "", pageError(ctx, err)
	}
	if id, err = nb.AddCode(ctx, len(cells), "python", source); err != nil {
		return "", pageError(ctx, err)
	}
	running, stop := context.WithTimeout(ctx, statusWait)
	defer stop()
	if _, err = nb.Run(running, id); running.Err() != nil || errors.Is(err, page.ErrRunning) {
		return id, nil
	}
	if err == nil {
		err = errors.New("it ended at once")
	}
	_ = nb.Delete(ctx, id)
	return "", pageError(ctx, err)
}

// besideStatusCell returns the outcome of a bridge while the status cell of its executor runs:
// no other cell could run before its end.
func (b *Bridge) besideStatusCell(ctx context.Context, j *job, l *look) (paired Paired, found bool) {
	if b.last.statusCell == "" {
		return paired, false
	}
	for _, e := range l.result() {
		if e.instance == b.last.instance && b.hasCell(ctx, j.nb, b.last.statusCell) {
			return Paired{Runtime: e.runtime, Already: true, Notes: []string{noteStatus}}.withDefault(b), true
		}
	}
	b.last.statusCell = ""
	return paired, false
}

func (b *Bridge) hasCell(ctx context.Context, nb Notebook, id string) bool {
	ctx, cancel := context.WithTimeout(ctx, editLimit)
	defer cancel()
	cells, err := nb.Cells(ctx, 0, -1, false)
	return err == nil && slices.ContainsFunc(cells, func(c page.Cell) bool { return c.ID == id })
}
