package op

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"colabrelay/relay/checkpoint"
	"colabrelay/relay/pairing"
	"colabrelay/relay/plain"
	"colabrelay/relay/runtimes"
	"colabrelay/shared/contract"
)

// maxRecent bounds what a relay remembers of one kind. Beyond it, the oldest is forgotten.
const maxRecent = 1000

// recent remembers values by their keys. The zero value is ready to use.
type recent[K comparable, V any] struct {
	mu  sync.Mutex
	all []remembered[K, V] // oldest first
}

type remembered[K comparable, V any] struct {
	key   K
	value V
}

// add remembers a value beside those that the key has.
func (r *recent[K, V]) add(key K, value V) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, remembered[K, V]{key, value})
	r.all = slices.Delete(r.all, 0, max(0, len(r.all)-maxRecent))
}

// put remembers a value in place of the one that the key has.
func (r *recent[K, V]) put(key K, value V) {
	r.take(key)
	r.add(key, value)
}

// get returns the oldest value of a key.
func (r *recent[K, V]) get(key K) (value V, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at := r.index(key); at >= 0 {
		return r.all[at].value, true
	}
	return value, false
}

// take returns the oldest value of a key and forgets it.
func (r *recent[K, V]) take(key K) (value V) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at := r.index(key); at >= 0 {
		value = r.all[at].value
		r.all = slices.Delete(r.all, at, at+1)
	}
	return value
}

func (r *recent[K, V]) index(key K) int {
	return slices.IndexFunc(r.all, func(each remembered[K, V]) bool { return each.key == key })
}

// A framework that gives up a call after some seconds tells its model to try again, and says nothing
// of the run that goes on. With 5 s, a model submitted the same run three times.
const (
	maxGivenUp  = 32 // calls that are remembered; beyond it the oldest is forgotten
	maxReminded = 3  // runs that an answer begins with, the newest
	keepGivenUp = 24 * time.Hour
	// leastLimit is the shortest limit of a client that is learnt: a person also cancels calls.
	leastLimit  = 3 * time.Second
	beforeLimit = time.Second // how long before it a call answers
	lookTime    = 2 * time.Second
	maxLooked   = 200 // newest runs of the VM, among which all are that have not ended
)

// givenUpCall is a call that its client gave up.
type givenUpCall struct {
	Client string        `json:"client"`
	At     time.Time     `json:"at"`
	After  time.Duration `json:"after"`
	// The rest is of a call that had submitted a run.
	Runtime   string `json:"runtime,omitempty"`
	Code      string `json:"code_sha256,omitempty"`
	RequestID string `json:"request_id,omitempty"`
	Instance  string `json:"instance,omitempty"` // of the executor to which it was sent
	Told      bool   `json:"told,omitempty"`     // an answer said that the run goes on
	Ended     bool   `json:"ended,omitempty"`    // the same code means a run of its own

	Kept bool `json:"kept"` // for later relays, too
}

// givenUpCalls remembers them. Some clients start a relay for every call, so what was a relay's first
// call is kept for the next ones. What two relays keep at the same moment, the later one overwrites.
type givenUpCalls struct {
	dir   string // empty for none
	mu    sync.Mutex
	read  bool
	calls []givenUpCall // oldest first
}

// use calls f with what is remembered, which f may change; save writes it.
func (g *givenUpCalls) use(save bool, f func()) (err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.read && g.dir != "" {
		_, _ = checkpoint.Load(g.dir, "calls", &g.calls) // a damaged file has none
	}
	g.read = true
	g.trim()
	f()
	g.trim()
	kept := slices.DeleteFunc(slices.Clone(g.calls), func(c givenUpCall) bool { return !c.Kept })
	if save && g.dir != "" && len(kept) > 0 {
		_, err = checkpoint.Save(g.dir, "calls", kept)
	}
	return err
}

func (g *givenUpCalls) trim() {
	g.calls = slices.DeleteFunc(g.calls, func(c givenUpCall) bool { return time.Since(c.At).Abs() > keepGivenUp })
	g.calls = slices.Delete(g.calls, 0, max(0, len(g.calls)-maxGivenUp))
}

// limit returns after how long a client gives up its calls; 0 if that is not known. Two calls that it
// gave up after about the same time show it.
func (g *givenUpCalls) limit(client string) (limit time.Duration) {
	_ = g.use(false, func() {
		for i, c := range g.calls {
			for _, earlier := range g.calls[:i] {
				least, most := min(c.After, earlier.After), max(c.After, earlier.After)
				if c.Client == client && earlier.Client == client && least >= leastLimit && most-least <= most/10 {
					limit = least
				}
			}
		}
	})
	return limit
}

// runs returns the newest runs of a client's calls that match, each once.
func (g *givenUpCalls) runs(client string, match func(givenUpCall) bool) (found []givenUpCall) {
	_ = g.use(false, func() {
		for _, c := range slices.Backward(g.calls) {
			known := func(other givenUpCall) bool { return other.RequestID == c.RequestID }
			if c.Client == client && c.RequestID != "" && !c.Ended && match(c) && len(found) < maxReminded && !slices.ContainsFunc(found, known) {
				found = append(found, c)
			}
		}
	})
	return found
}

// gaveUp remembers that a client gave up a call, which may have been the first one of this relay. run
// is what the call had submitted; nil for nothing.
func (r *Relay) gaveUp(client string, after time.Duration, first bool, run *givenUpCall) {
	c := *cmp.Or(run, &givenUpCall{})
	c.Client, c.At, c.After, c.Kept = client, time.Now(), after, first
	r.changeGivenUp(func(all []givenUpCall) []givenUpCall { return append(all, c) })
}

func (r *Relay) changeGivenUp(change func([]givenUpCall) []givenUpCall) {
	if err := r.givenUp.use(true, func() { r.givenUp.calls = change(r.givenUp.calls) }); err != nil {
		r.cfg.Log.Warn("the next relay will not know which calls were given up", "err", err)
	}
}

// markGivenUp notes of a run that an answer named it, and whether it has ended.
func (r *Relay) markGivenUp(requestID string, ended bool) {
	if requestID == "" {
		return
	}
	r.changeGivenUp(func(all []givenUpCall) []givenUpCall {
		for i := range all {
			if all[i].RequestID == requestID {
				all[i].Told, all[i].Ended = true, all[i].Ended || ended
			}
		}
		return all
	})
}

// look asks the VM how far a run is; without an id, there is no such run.
func (c *call) look(ctx context.Context, g givenUpCall) (contract.Execution, error) {
	at, err := c.cfg.Resolve(g.Runtime)
	if err != nil {
		return contract.Execution{}, err
	}
	ctx, done := context.WithTimeout(ctx, lookTime)
	defer done()
	list, err := at.Client.List(ctx, maxLooked)
	for _, e := range list.Executions {
		if e.RequestID == g.RequestID {
			return e, err
		}
	}
	return contract.Execution{}, err
}

// reminder is what an answer begins with: a run that a call left.
type reminder struct {
	requestID, text string
	ended           bool
}

// remind reminds of the runs that calls of this client left, once each.
func (c *call) remind(ctx context.Context) {
	ctx, done := context.WithTimeout(ctx, lookTime)
	defer done()
	for _, g := range c.givenUp.runs(c.client, func(g givenUpCall) bool { return !g.Told }) {
		e, err := c.look(ctx, g)
		r := reminder{requestID: g.RequestID, ended: e.Status.Finished()}
		id, status := plain.Clip(e.ExecutionID, maxShownID), inline(string(e.Status))
		switch {
		case err != nil:
			r.text = fmt.Sprintf("An earlier call was given up after %.0f s; its run may still be running; do not submit it again: list_executions shows it under request_id %s.\n", g.After.Seconds(), g.RequestID)
		case e.ExecutionID == "": // it never arrived
		case r.ended:
			r.text = fmt.Sprintf("An earlier call was given up after %.0f s; its run %s has ended since (%s). Its output: %s\n",
				g.After.Seconds(), id, status, command("get_execution", "execution_id", id, "runtime_name", g.Runtime))
		default:
			r.text = fmt.Sprintf("An earlier call was given up after %.0f s; its run %s is still %s; do not submit it again. Its output: %s\n",
				g.After.Seconds(), id, status, command("get_execution", "execution_id", id, "wait_seconds", c.waitSeconds(), "runtime_name", g.Runtime))
		}
		c.reminders = append(c.reminders, r)
	}
}

// leftRun returns the run of the same code that a call of this client left, unless it has ended; one
// without a request_id if there is none. One that did not arrive yet is not underWay.
func (c *call) leftRun(ctx context.Context, code string) (left givenUpCall, underWay bool, err error) {
	sum := codeSum(code)
	for _, g := range c.givenUp.runs(c.client, func(g givenUpCall) bool { return g.Code == sum && g.Runtime == c.target.Name }) {
		e, err := c.look(ctx, g)
		if err != nil || !e.Status.Finished() {
			return g, e.ExecutionID != "", err
		}
		c.markGivenUp(g.RequestID, true)
	}
	return givenUpCall{}, false, nil
}

func codeSum(code string) string {
	sum := sha256.Sum256([]byte(code))
	return hex.EncodeToString(sum[:])
}

// lastKernels remembers the kernel last seen of each runtime, so that a call can warn when
// a different one answers.
type lastKernels struct {
	stored runtimes.LastSeen // read for a runtime that this process has not seen yet

	mu   sync.Mutex
	last map[string]pairing.LastSeen
}

// seen returns what was last seen of a runtime.
func (k *lastKernels) seen(runtime string) pairing.LastSeen {
	k.mu.Lock()
	defer k.mu.Unlock()
	last, known := k.last[runtime]
	if !known && k.stored.Load != nil {
		return k.stored.Load(runtime)
	}
	return last
}

// record saves a kernel that needs no warning.
func (k *lastKernels) record(runtime, id string) { k.update(runtime, "", id) }

// update saves a kernel and, unless empty, the instance it runs on. It returns what was
// seen before, and what is now.
func (k *lastKernels) update(runtime, instance, id string) (before, now pairing.LastSeen) {
	if id == "" { // no kernel yet
		return before, now
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	before, known := k.last[runtime]
	if !known && k.stored.Load != nil {
		before = k.stored.Load(runtime)
	}
	now = before.Updated(instance, id)
	if k.last == nil {
		k.last = map[string]pairing.LastSeen{}
	}
	k.last[runtime] = now
	if now != before && k.stored.Save != nil {
		k.stored.Save(runtime, now)
	}
	return before, now
}

// checkKernel warns when the kernel is not the one last seen by this relay process or an
// earlier one. It compares kernels, not instances, because a caller that asked for a new
// VM's kernel, as restore_kernel_state does, needs no warning.
func (c *call) checkKernel(id string) {
	if c.person != nil {
		return // remoterun tells people, before code runs
	}
	before, now := c.kernels.update(c.target.Name, c.target.Client.InstanceID(), id)
	if loss := before.Loss(now); loss != "" {
		c.warn("This is %s. %s", loss, c.afterLoss())
	}
}

// kernelWait bounds the extra request of checkKernelOf.
const kernelWait = 2 * time.Second

// checkKernelOf is checkKernel for a run that an earlier call may have started, even in an
// earlier kernel: if it has ended in a kernel other than the one last seen, the executor is
// asked which kernel there is now.
func (c *call) checkKernelOf(ctx context.Context, e contract.Execution) {
	seen := c.kernels.seen(c.target.Name).KernelID
	switch {
	case e.KernelID == "" || e.KernelID == seen:
	case !e.Status.Finished():
		c.checkKernel(e.KernelID)
	case seen != "":
		ctx, cancel := context.WithTimeout(ctx, kernelWait)
		defer cancel()
		if now, err := c.target.Client.Kernel(ctx); err == nil {
			c.checkKernel(now.KernelID)
		}
	}
}

// When calls warn that the VM will end.
const (
	nearEnd = 30 * time.Minute
	// repeatWarning keeps the last half hour from showing the warning in every answer.
	repeatWarning = 5 * time.Minute
)

// vmEnds remembers, for each runtime, when its VM is expected to end. The zero value is
// ready to use.
type vmEnds struct {
	mu   sync.Mutex
	last map[string]vmEnd // by runtime; there are as many as pairings
}

// vmEnd is the expected end of one VM.
type vmEnd struct {
	instance string // a new VM behind the same name ends at another time
	ends     time.Time
	warned   time.Time // when a call last warned
}

// left returns the minutes until the end by the newest estimate, at least 0, and whether the call
// should warn now; nil if there is no estimate. fresh is a new one, or nil.
func (v *vmEnds) left(runtime, instance string, fresh *float64, now time.Time) (minutes *float64, warn bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	known := v.last[runtime]
	if known.instance != instance {
		known = vmEnd{instance: instance}
	}
	if fresh != nil {
		known.ends = now.Add(time.Duration(*fresh * float64(time.Minute)))
	}
	if known.ends.IsZero() {
		return nil, false
	}
	rest := known.ends.Sub(now)
	if warn = rest < nearEnd && now.Sub(known.warned) >= repeatWarning; warn {
		known.warned = now
	}
	if v.last == nil {
		v.last = map[string]vmEnd{}
	}
	v.last[runtime] = known
	return round(max(0, rest.Minutes()), 10), warn
}

// warnOfEnd warns if the VM or its executor will end soon. left is an execution's
// session_minutes_left: nil when unknown, 0 when the executor is shutting down, which
// every answer then says.
func (c *call) warnOfEnd(left *float64) {
	switch {
	case left == nil, c.person != nil: // a person reads how long the VM lasts in other answers
	case *left <= 0:
		c.warn("The executor is shutting down: %s now, while it still answers; variables that are not saved are lost. After its cell was started again, %s restores the saved ones.",
			c.either("call save_kernel_state and download_from_colab", "run `colab-relay save` and `colab-relay get`"), c.either("restore_kernel_state", "`colab-relay restore`"))
	default:
		c.minutesLeft(left)
	}
}

// minutesLeft returns the minutes until the VM's expected end without a request; nil if unknown.
// fresh is a new estimate, or nil. It warns a model when the VM's published time limit is near. A VM
// may exceed it, so 0 minutes only mean soon.
func (c *call) minutesLeft(fresh *float64) *float64 {
	left, warn := c.vmEnds.left(c.target.Name, c.target.Client.InstanceID(), fresh, time.Now())
	if warn && c.person == nil {
		c.warn("The VM is expected to end in about %s: call save_kernel_state to keep the variables, download_from_colab for files.", plain.Count(max(int(math.Ceil(*left)), 1), "minute"))
	}
	return left
}
