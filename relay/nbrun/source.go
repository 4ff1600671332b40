package nbrun

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"colabrelay/relay/notebook"
	"colabrelay/relay/parameters"
	"colabrelay/relay/plain"
	"colabrelay/shared/contract"
)

// Tags of a cell that a run heeds.
const (
	tagSkip          = "skip-execution"
	tagExpectFailure = "raises-exception"
	tagForce         = "force-execute"
	tagNoRetry       = "no-retry"
	tagFrozen        = "frozen"
	tagSaveState     = "save-state"
	tagTimeout       = "timeout=" // seconds follow
	tagRetries       = "retries=" // a number follows
	tagInjected      = "injected-parameters"
)

// cell is a code cell that is not blank, as it is in the notebook now.
type cell struct {
	index  int
	handle string
	title  string
	code   string // what is sent: the source with its parameters
	source string // digest of the source
	sent   string // digest of code
	tags   []string

	ownTimeout, ownRetries float64  // by its tags; 0 without
	wrong                  []string // tags without a number that fits
}

func newCell(from notebook.Cell, values *parameters.Values) *cell {
	c := &cell{index: from.Index, handle: from.Handle, code: values.Fill(from.Source), source: hash(from.Source), tags: from.Tags}
	c.sent = hash(c.code)
	c.title = plain.Clip(from.Headline(), maxTitle)
	c.ownTimeout, c.ownRetries = c.number(tagTimeout, math.MaxFloat64), c.number(tagRetries, MaxRetries)
	return c
}

func (c *cell) has(tag string) bool { return slices.Contains(c.tags, tag) }

// timeout is how many seconds the cell may take, when the run allows it usual.
func (c *cell) timeout(usual time.Duration) float64 {
	return min(cmp.Or(c.ownTimeout, usual.Seconds()), contract.MaxTimeout.Seconds())
}

// retries is how often the cell is run again after a transient error.
func (c *cell) retries(usual int) int {
	if c.has(tagNoRetry) || c.has(tagExpectFailure) {
		return 0
	}
	return cmp.Or(int(c.ownRetries), usual)
}

// number returns the number of the cell's tag that begins so, 0 without one.
func (c *cell) number(prefix string, most float64) (n float64) {
	for _, tag := range c.tags {
		text, ok := strings.CutPrefix(tag, prefix)
		if !ok {
			continue
		}
		if own, err := strconv.ParseFloat(text, 64); err == nil && own > 0 && own <= most {
			n = own
		} else {
			c.wrong = append(c.wrong, tag)
		}
	}
	return n
}

// view is the notebook's code as a run sees it.
type view struct {
	document *notebook.Document
	cells    []*cell
	byHandle map[string]*cell
	digest   string // of all handles, sources and tags, in order
}

// newView reads the code cells of a document. Values of #@param lines are replaced in what is
// sent.
func newView(d *notebook.Document, values *parameters.Values) *view {
	v := &view{document: d, byHandle: map[string]*cell{}}
	var all []string
	for i := range d.Len() {
		from := d.Cell(i)
		if from.Type != notebook.Code || strings.TrimSpace(from.Source) == "" {
			continue
		}
		c := newCell(from, values)
		v.cells, v.byHandle[c.handle] = append(v.cells, c), c
		all = append(append(all, c.handle, c.sent, c.source), c.tags...)
	}
	v.digest = hash(strings.Join(all, "\x00"))
	return v
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
