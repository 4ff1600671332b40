package nbrun

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"colabrelay/relay/notebook"
	"colabrelay/relay/parameters"
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
	tagInjected      = "injected-parameters"
)

// cell is a code cell that is not blank, as it is in the notebook now.
type cell struct {
	index  int
	handle string
	title  string
	text   string // as in the notebook
	code   string // what is sent: text with its parameters
	source string // digest of text
	sent   string // digest of code
	tags   []string
}

func (c *cell) has(tag string) bool { return slices.Contains(c.tags, tag) }

// timeout is how many seconds the cell may take, when the run allows it usual.
func (c *cell) timeout(usual time.Duration) float64 {
	seconds := usual.Seconds()
	if own, _ := c.ownTimeout(); own > 0 {
		seconds = own
	}
	return min(seconds, contract.MaxTimeout.Seconds())
}

// ownTimeout returns the seconds of the cell's tag for its timeout, 0 without one, and a tag that
// does not say how many.
func (c *cell) ownTimeout() (seconds float64, wrong string) {
	for _, tag := range c.tags {
		text, ok := strings.CutPrefix(tag, tagTimeout)
		if !ok {
			continue
		}
		if own, err := strconv.ParseFloat(text, 64); err == nil && own > 0 {
			seconds = own
		} else {
			wrong = tag
		}
	}
	return seconds, wrong
}

// noteTimeout says that a cell's tag does not set its timeout.
func (a *advance) noteTimeout(c *cell) {
	if _, wrong := c.ownTimeout(); wrong != "" {
		a.addNote("cell %d (%s) has the tag %.40q, which is no number of seconds such as timeout=3600: the usual timeout applies", c.index, c.handle, wrong)
	}
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
	all := sha256.New()
	for i := range d.Len() {
		from := d.Cell(i)
		if from.Type != notebook.Code || strings.TrimSpace(from.Source) == "" {
			continue
		}
		c := newCell(from, values)
		v.cells = append(v.cells, c)
		v.byHandle[c.handle] = c
		for _, part := range append([]string{c.handle, c.sent, c.source}, c.tags...) {
			all.Write([]byte(part))
			all.Write([]byte{0})
		}
	}
	v.digest = hex.EncodeToString(all.Sum(nil))
	return v
}

func newCell(from notebook.Cell, values *parameters.Values) *cell {
	c := &cell{index: from.Index, handle: from.Handle, title: titleOf(from), text: from.Source, tags: from.Tags}
	c.code = values.Fill(c.text)
	c.source, c.sent = hash(c.text), hash(c.code)
	return c
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// titleOf is what stands for a cell in a list: its title, or its first line.
func titleOf(c notebook.Cell) string {
	title := strings.TrimSpace(c.Title)
	if title == "" {
		title, _, _ = strings.Cut(strings.TrimSpace(c.Source), "\n")
	}
	title = strings.TrimSpace(strings.ToValidUTF8(title, "�"))
	if utf8.RuneCountInString(title) > maxTitle {
		title = string([]rune(title)[:maxTitle-1]) + "…"
	}
	return title
}
