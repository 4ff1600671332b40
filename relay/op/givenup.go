package op

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
	"time"

	"colabrelay/relay/checkpoint"
	"colabrelay/relay/plain"
	"colabrelay/shared/contract"
)

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
