package journal

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/memorydir"
	"colabrelay/shared/smalldisk"
	"colabrelay/shared/tier"
)

// accepted is a run or a job, and what was acknowledged of it.
type accepted struct {
	submit contract.Submit
	record *Record // nil for a job
	status contract.Status
	text   string
	over   bool // nothing more is done with it
}

// oracle works on a journal and notes what it has acknowledged.
type oracle struct {
	*testing.T
	random    *rand.Rand
	dir       string
	limits    Limits
	j         *Journal
	all       []accepted
	forgotten []string // request ids, and job ids, in the order in which tombstones were written
	full      bool
	cut       bool // the next step is cut off: nothing is deleted after it
}

func (o *oracle) open() {
	if o.j != nil {
		closeAll(o.j)
	}
	o.j = openIn(o.T, o.dir, o.limits)
	o.noteForgotten()
}

// pick returns an accepted run with the status, nil if there is none.
func (o *oracle) pick(status contract.Status) *accepted {
	for _, n := range o.random.Perm(len(o.all)) {
		if a := &o.all[n]; a.record != nil && a.status == status && !a.over {
			return a
		}
	}
	return nil
}

func (o *oracle) create() error {
	s := contract.Submit{RequestID: fmt.Sprint("request-", len(o.all)), Code: fmt.Sprint("run(", len(o.all), ")"), Unstored: o.random.IntN(3) == 0}
	r, err := o.j.Create(s)
	if err == nil {
		o.all = append(o.all, accepted{submit: s, record: r, status: contract.StatusQueued})
	} else if !o.full || !errors.Is(err, ErrDiskFull) {
		o.Errorf("Create: %v", err)
	}
	return err
}

func (o *oracle) begin(a *accepted) {
	err := a.record.Update(func(x *contract.Execution) { x.Status = contract.StatusRunning })
	if err == nil {
		a.status = contract.StatusRunning
		a.record.OpenLog()
		return
	}
	if !o.full {
		o.Errorf("Update: %v", err)
	}
	o.finish(a, contract.StatusFailed)
}

func (o *oracle) print(a *accepted) {
	text := fmt.Sprintln("line", o.random.IntN(1000), strings.Repeat("x", o.random.IntN(100)))
	if err := a.record.Append(stdout(text)); err != nil && !o.full {
		o.Errorf("Append: %v", err)
	} else if err == nil && !a.record.events.inMemory() {
		a.text += text
	}
}

func (o *oracle) finish(a *accepted, status contract.Status) {
	a.over = true
	a.record.Finish(status, "", 0)
	if !a.record.unsaved {
		a.status = status
	}
	if o.random.IntN(2) == 0 {
		a.record.CloseLog()
	}
}

func setOf(ids []string) map[string]bool {
	set := make(map[string]bool, len(ids))
	for _, id := range ids {
		set[id] = true
	}
	return set
}

// noteForgotten notes which runs have become tombstones, in the order of these.
func (o *oracle) noteForgotten() {
	place := func(id string) int {
		if n, ok := o.j.states.byKey[maphash.String(seeds.request, id)]; ok {
			return n
		}
		return -1
	}
	known, noted := len(o.forgotten), setOf(o.forgotten)
	for _, a := range o.all {
		if a.record != nil && o.j.byID[a.record.ID] == nil && !noted[a.submit.RequestID] {
			o.forgotten = append(o.forgotten, a.submit.RequestID)
		}
	}
	slices.SortStableFunc(o.forgotten[known:], func(a, b string) int { return cmp.Compare(place(a), place(b)) })
}

// job adds to the record of the newest job, or begins another one, or puts a tombstone in its place.
func (o *oracle) job() {
	at := slices.IndexFunc(o.all, func(a accepted) bool { return a.record == nil && !slices.Contains(o.forgotten, a.submit.RequestID) })
	id, first := fmt.Sprint("job-", len(o.all)), at < 0
	if !first {
		id = o.all[at].submit.RequestID
	}
	var err error
	end := !first && o.random.IntN(3) == 0
	if end {
		err = o.j.RememberJob(id, digest(id))
	} else {
		err = o.j.RecordJob(id, first, id)
	}
	switch {
	case err != nil && !o.full:
		o.Errorf("%s: %v", id, err)
	case err != nil:
	case end:
		o.forgotten = append(o.forgotten, id)
	case first:
		o.all = append(o.all, accepted{submit: contract.Submit{RequestID: id}, text: "."})
	default:
		o.all[at].text += "."
	}
}

// step does something that an executor does.
func (o *oracle) step() {
	running, queued := o.pick(contract.StatusRunning), o.pick(contract.StatusQueued)
	switch n := o.random.IntN(20); {
	case n < 5 || o.all == nil:
		_ = o.create()
	case n < 9 && queued != nil:
		o.begin(queued)
	case n < 13 && running != nil:
		o.print(running)
	case n < 16 && running != nil:
		o.finish(running, contract.StatusSucceeded)
	case n == 16:
		o.job()
	case n == 17 && o.full && !o.cut: // until the reserve is used up
		for range 5000 {
			if o.create() != nil {
				break
			}
		}
	case o.cut: // Trim, killed before it deletes folders
		o.j.trim()
		o.noteForgotten()
	default:
		o.j.Trim()
		o.noteForgotten()
	}
}

// kill does a last step, and cuts off its lines at a random byte. Then the next executor starts.
func (o *oracle) kill() {
	before, forgotten := slices.Clone(o.all), slices.Clone(o.forgotten)
	file, from := o.j.states.file, o.j.states.used
	o.cut = true
	o.step()
	o.cut = false
	to := o.j.states.used
	if cut := from + o.random.Int64N(max(1, to-from+1)); o.j.states.file == file && cut < to {
		o.all, o.forgotten = before, forgotten
		if o.random.IntN(2) == 0 && !o.full {
			must(o, os.Truncate(o.j.states.path, cut))
		} else {
			_, err := file.WriteAt(make([]byte, to-cut), cut)
			must(o, err)
		}
	}
	o.open()
}

// check compares the journal, which was opened after a kill, with what was acknowledged.
func (o *oracle) check() {
	lost := setOf(o.forgotten[:max(0, len(o.forgotten)-o.limits.Tombstones)])
	for n := range o.all {
		a := &o.all[n]
		a.over = true
		if lost[a.submit.RequestID] {
			continue
		}
		if id := a.submit.RequestID; a.record == nil && !slices.Contains(o.forgotten, id) {
			if record, err := o.j.JobRecord(id); err != nil || len(record) != len(a.text) {
				o.Errorf("%s has %d parts of %d, %v", id, len(record), len(a.text), err)
			}
			continue
		}
		if a.record == nil {
			var p string
			if ok := o.j.PastJob(a.submit.RequestID, &p); !ok || p != digest(a.submit.RequestID) {
				o.Errorf("%s is %+v, %v", a.submit.RequestID, p, ok)
			}
			continue
		}
		wantKnown(o.T, o.j, "after a kill", a.submit, a.record.ID)
		x, err := o.j.Read(o.Context(), a.record.ID, ReadRequest{MaxBytes: 1 << 30})
		must(o, err)
		switch ok := x.Status == a.status; {
		case a.status == contract.StatusQueued:
			ok = x.Status == contract.StatusCancelled || x.Status == contract.StatusLost || x.Status == contract.StatusFailed
			fallthrough
		case a.status == contract.StatusRunning:
			ok = ok || x.Status == contract.StatusLost
			fallthrough
		case !ok:
			if !ok {
				o.Errorf("%s was acknowledged as %s, and is %s: %s", a.submit.RequestID, a.status, x.Status, x.Reason)
			}
		}
		var text strings.Builder
		for _, e := range x.Events {
			text.WriteString(e.Text)
		}
		if o.j.byID[x.ExecutionID] != nil && !strings.HasPrefix(text.String(), a.text) {
			o.Errorf("%s printed %q, and has %q", a.submit.RequestID, a.text, text.String())
		}
		a.record, err = o.j.Find(x.ExecutionID)
		must(o, err)
		if !a.record.unsaved {
			a.status = x.Status
		}
	}
}

// round is the life of some executors on one folder.
func round(t *testing.T, dir string, seed uint64, disk bool) {
	o := &oracle{T: t, random: rand.New(rand.NewPCG(1, seed)), dir: filepath.Join(dir, fmt.Sprint(seed)), limits: Limits{Kept: 3, Tombstones: 8}}
	defer func() {
		if t.Failed() {
			t.Logf("in round %d", seed)
		}
	}()
	o.open()
	filler := filepath.Join(dir, "filler")
	for range 4 {
		for range o.random.IntN(30) {
			o.step()
		}
		if disk {
			if o.full {
				must(t, os.Remove(filler))
			} else {
				smalldisk.Fill(t, filler)
			}
			o.full = !o.full
			for range o.random.IntN(30) {
				o.step()
			}
		}
		o.kill()
		o.check()
	}
	closeAll(o.j)
	must(t, os.RemoveAll(o.dir))
	os.Remove(filler)
}

func TestWhatWasAcknowledgedSurvivesAKillAtAnyByte(t *testing.T) {
	rounds := uint64(500)
	if testing.Short() {
		rounds = 50
	}
	dir := memorydir.New(t)
	for seed := range rounds {
		if round(t, dir, seed, false); t.Failed() {
			return
		}
	}
}

func TestWhatWasAcknowledgedSurvivesAKillOnAFullDisk(t *testing.T) {
	tier.Long(t)
	disk := smalldisk.Run(t, 32)
	if disk == "" {
		return
	}
	for seed := range uint64(40) {
		if round(t, disk, seed, true); t.Failed() {
			return
		}
	}
}
