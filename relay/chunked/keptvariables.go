package chunked

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"colabrelay/relay/kernelstate"
)

// KeepBounds say how much of a run's time and of the line may go into keeping.
type KeepBounds struct {
	Every    time.Duration // between two tries
	Share    float64       // of the time that iterations took, in all
	MaxBytes int64         // at a time; 0 keeps nothing
	// RunBytes of a run in all, where they count, as through a tunnel; 0 for no bound.
	RunBytes int64
}

const (
	// firstCost is what keeping a few small variables takes, before it is known: so the
	// first time comes after a second of iterations, at a share of 5 %.
	firstCost = 0.05
	// guessedRate of fetching, in bytes a second, before one was measured.
	guessedRate = 2 << 20
	// maxLost bounds the names that are told.
	maxLost = 20
)

// CarriedVariables is what iterations hand on: names, and how each may change.
type CarriedVariables struct {
	Names  map[string][]string `json:"names"`
	Opaque []string            `json:"opaque"` // why it may be more
}

func (c *CarriedVariables) nothing() bool { return c != nil && len(c.Names) == 0 && len(c.Opaque) == 0 }

func (c *CarriedVariables) names() []string {
	names := []string{}
	if c != nil {
		for name := range c.Names {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// VariableRecord is the part of a run's state that is about its variables.
type VariableRecord struct {
	Carried *CarriedVariables `json:"carries"` // nil until the kernel told
	Kept    *KeptVariables    `json:"kept"`    // the variables on this computer
	Recover recovery          `json:"recover"`

	Unkept         []kernelstate.Omission `json:"unkept"`      // why the newest variables are not kept
	UnkeptReported bool                   `json:"unkept_told"` // once is enough
	KeepTried      time.Time              `json:"keep_tried"`
	KeepCost       float64                `json:"keep_cost"`    // seconds that the next time will take
	KeepSeconds    float64                `json:"keep_seconds"` // in all
	KeepBytes      int64                  `json:"keep_bytes"`   // in all
	KeepRate       float64                `json:"keep_rate"`    // bytes a second, measured
}

// KeptVariables are the variables of one iteration, and the code that they belong to.
type KeptVariables struct {
	Version     string   `json:"version"`
	Done        int64    `json:"done"` // they are as after iteration Done-1
	SHA256      string   `json:"sha256"`
	Absent      []string `json:"absent"`
	SetupSHA256 string   `json:"setup_sha256"`
	LoopSHA256  string   `json:"loop_sha256"`
}

// recovery is how far the kept variables are on their way into a new kernel.
type recovery string

const (
	recoverNone      recovery = ""
	recoverSetup     recovery = "setup"     // the set-up is to run there
	recoverVariables recovery = "variables" // it ran: they are to be loaded
)

// newCode forgets what was known of the code before. What is kept stays, and is of no
// use unless that code comes back.
func (k *VariableRecord) newCode() {
	k.Carried, k.Unkept, k.UnkeptReported, k.KeepTried, k.Recover = nil, nil, false, time.Time{}, recoverNone
}

// usable reports whether what is kept is of this code.
func (s *Record) usable() bool {
	k := s.Kept
	return k != nil && k.SetupSHA256 == s.SetupSHA256 && k.LoopSHA256 == s.LoopSHA256 && k.Done <= s.Done
}

// beginKeeping puts in order what calls before this one left.
func (a *advance) beginKeeping() {
	if a.stale && a.opt.Keeper != nil {
		a.endKeeping()
	}
	if a.spec.OnNew == NewKernelContinue || a.opt.Keeper == nil || !a.state.usable() {
		a.state.Recover = recoverNone
	}
}

// endKeeping drops what is kept: the run needs it no more.
func (a *advance) endKeeping() {
	a.state.Kept, a.stale = nil, false
	if a.opt.Keeper == nil {
		return
	}
	if err := a.opt.Keeper.DropAll(); err != nil {
		a.note("what was kept of the run's variables could not be removed: %v", err)
	}
}

// keepDue reports whether to keep the variables now. What the kernel has of this run is
// then as after the iteration that was confirmed last.
func (a *advance) keepDue() bool {
	s, b := a.state, a.opt.Keep
	switch {
	case a.opt.Keeper == nil || b.MaxBytes == 0 || a.spec.OnNew == NewKernelContinue:
	case s.Carried == nil || s.Carried.nothing() || s.Done == 0 || s.KernelID == "":
	case s.usable() && s.Kept.Done == s.Done:
	case time.Since(s.KeepTried) < b.Every:
	case s.KeepSeconds+a.keepCost() > a.allowance():
	case b.RunBytes > 0 && s.KeepBytes >= b.RunBytes:
	default:
		return time.Until(a.opt.Until).Seconds() > 1+2*a.keepCost()
	}
	return false
}

func (a *advance) keepCost() float64 {
	if a.state.KeepCost == 0 {
		return firstCost
	}
	return a.state.KeepCost
}

// allowance is how many seconds may have gone into keeping by now.
func (a *advance) allowance() float64 {
	return a.opt.Keep.Share * (a.state.MeanSeconds*float64(a.state.Timed) + a.state.SetupSeconds)
}

// keep keeps the variables, where it is time to. That it does not work stops no run.
func (a *advance) keep(ctx context.Context) error {
	if !a.keepDue() {
		return nil
	}
	s, began := a.state, time.Now()
	if len(s.Carried.Opaque) > 0 {
		a.unkept([]kernelstate.Omission{{Reason: "what iterations hand on can't be told from code with " + strings.Join(s.Carried.Opaque, ", ")}})
		s.KeepTried = began
		return nil
	}
	order := kernelstate.KeepRequest{
		Run: s.Key, Names: s.Carried.names(), MaxBytes: a.opt.Keep.MaxBytes, MayFetch: a.fits,
		MaxBusy: time.Duration(max(a.allowance()-s.KeepSeconds, firstCost) * float64(time.Second)),
		Until:   a.opt.Until,
	}
	if s.usable() {
		order.LastSHA256 = s.Kept.SHA256
	}
	got, err := a.opt.Keeper.Keep(ctx, order)
	took := time.Since(began).Seconds()
	s.KeepTried, s.KeepSeconds = time.Now().UTC(), s.KeepSeconds+took
	a.takeKept(got, err, took)
	if err := a.save(); err != nil {
		return err
	}
	if got.Version != "" {
		if err := a.opt.Keeper.DropOthers(got.Version); err != nil {
			a.note("what was kept before could not be removed: %v", err)
		}
	}
	return nil
}

// fits reports whether to fetch so many bytes, given the time and the traffic left.
func (a *advance) fits(bytes int64) bool {
	s := a.state
	if most := a.opt.Keep.RunBytes; most > 0 && s.KeepBytes+bytes > most {
		a.unkept([]kernelstate.Omission{{Reason: fmt.Sprintf("with what was kept before they are over the %d MB that a run may send through a tunnel", most>>20)}})
		return false
	}
	rate := s.KeepRate
	if rate == 0 {
		rate = guessedRate
	}
	seconds := float64(bytes) / rate
	s.KeepCost = max(s.KeepCost, seconds)
	return s.KeepSeconds+seconds <= a.allowance() || seconds <= firstCost
}

// takeKept takes in what came of keeping.
func (a *advance) takeKept(got kernelstate.KeepResult, err error, took float64) {
	s := a.state
	switch {
	case err != nil:
		a.note("what iterations build on could not be kept this time: %v", err)
		s.KeepCost = max(s.KeepCost, took)
	case got.Missing:
	case len(got.Unkept) > 0:
		a.unkept(got.Unkept)
		s.KeepCost = took
	case got.TooSlow, got.TimedOut, got.NotFetched:
		s.KeepCost = max(s.KeepCost, 2*took)
	case got.Unchanged:
		s.KeepCost, s.Unkept = took, nil
		s.Kept.Done, s.Kept.Absent = got.Done, got.Absent
	default:
		s.KeepCost, s.Unkept = took, nil
		s.KeepBytes += got.Bytes
		if got.Bytes > guessedRate/4 { // a small one measures the way there and back
			s.KeepRate = float64(got.Bytes) / took
		}
		s.Kept = &KeptVariables{
			Version: got.Version, Done: got.Done, SHA256: got.SHA256, Absent: got.Absent,
			SetupSHA256: s.SetupSHA256, LoopSHA256: s.LoopSHA256,
		}
	}
}

// unkept tells, once, what can't be kept, and why.
func (a *advance) unkept(lost []kernelstate.Omission) {
	a.state.Unkept = lost[:min(len(lost), maxLost)]
	if a.state.UnkeptReported {
		return
	}
	a.state.UnkeptReported = true
	a.note("iterations build on %s, which the relay can't keep on this computer: %s. If the kernel is lost, the run stops and asks how to go on. save_kernel_state keeps what it can; on_new_kernel=\"continue\" is right if iterations do not need each other", a.built(), reasons(lost))
}

// built names what iterations build on.
func (a *advance) built() string {
	names := a.state.Carried.names()
	switch {
	case len(names) == 0:
		return "variables that can't be named"
	case len(names) > maxLost:
		return strings.Join(names[:maxLost], ", ") + fmt.Sprintf(" and %d more", len(names)-maxLost)
	}
	return strings.Join(names, ", ")
}

func reasons(lost []kernelstate.Omission) string {
	var all []string
	for _, l := range lost[:min(len(lost), 3)] {
		if l.Name != "" {
			l.Reason = l.Name + ": " + l.Reason
		}
		all = append(all, l.Reason)
	}
	return strings.Join(all, "; ")
}
