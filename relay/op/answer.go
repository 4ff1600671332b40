package op

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"colabrelay/relay/plain"
	"colabrelay/relay/render"
	"colabrelay/relay/terminal"
)

// Sizes of a result. Claude Desktop cuts at 1 MB, pictures included.
const (
	maxResultBytes = 880_000
	maxTextRunes   = 39_500
	maxPageRunes   = 60_000 // a page of the largest events at the largest limit has less
	maxListBytes   = 36_000 // of a list in structuredContent
)

// payload is the tool's own part of an answer: a pointer to a struct of JSON fields, or nil
// for none.
type payload interface {
	// text writes the same for a model, which reads nothing else.
	text(b *words)
}

// Outcome is the part that all answers have in common.
type Outcome struct {
	Success bool     `json:"success"`           // false if something went wrong; error says what
	Runtime string   `json:"runtime"`           // name of the runtime that the call used; empty if none could be chosen
	Warning string   `json:"warning,omitempty"` // something to know before you continue, such as a new kernel without the old variables
	Error   *Problem `json:"error,omitempty"`
}

// Problem is the error object of an answer.
type Problem struct {
	Code      string `json:"code"`             // what went wrong, for programs
	Message   string `json:"message"`          // what happened
	Hint      string `json:"hint"`             // the next step
	EName     string `json:"ename,omitempty"`  // class of the Python exception
	EValue    string `json:"evalue,omitempty"` // its text
	Traceback string `json:"traceback,omitempty"`

	arrived bool // no executor answered, and one may have carried out the request
}

// Error returns the code and the message.
func (p *Problem) Error() string { return p.Code + ": " + p.Message }

// NextStep is what the reader of the call's answer does next.
func (p *Problem) NextStep() string { return p.Hint }

// orNil returns p as an error.
func (p *Problem) orNil() error {
	if p == nil {
		return nil
	}
	return p
}

// copy returns a problem that may be changed; some are shared by all calls.
func (p *Problem) copy() *Problem {
	fresh := *p
	return &fresh
}

// withHint returns a copy of p with another hint.
func (p *Problem) withHint(text string) *Problem {
	fresh := p.copy()
	fresh.Hint = text
	return fresh
}

// shown applies to every string of an answer: it makes names of files, and other text from
// outside without a special rule, plain.
var shown = map[string]plain.Rule{"": plain.Text}

// beforeSending must be called right before the answer is sent.
func (c *call) beforeSending() {
	if c.sending != nil {
		c.sending()
	}
	for _, r := range c.reminders {
		c.markGivenUp(r.requestID, r.ended)
	}
}

// answer assembles an answer: text and pictures, and JSON if a person's setting asks for it. A
// host shows the model either the text or the JSON, so a model reads the text only without JSON.
func (c *call) answer(got payload, problem *Problem) Result {
	out := Outcome{Success: problem == nil, Runtime: c.target.Name, Warning: strings.Join(c.warnings, " ")}
	if problem != nil {
		out.Error = inExtension(c.cfg.PairingField, problem.copy())
	}
	plain.Deep(&out, shown)
	plain.Deep(&got, shown)
	var structured json.RawMessage
	if c.cfg.Structured {
		var err error
		if structured, err = merge(out, got); err != nil {
			out = Outcome{Runtime: c.target.Name, Error: internalProblem("encoding the answer: " + err.Error())}
			got, c.pictures = nil, nil
			structured, _ = merge(out, nil)
		}
	}
	var b words
	for _, r := range c.reminders {
		b.WriteString(r.text)
	}
	out.text(&b)
	if got != nil {
		got.text(&b)
	}
	out.trace(&b)
	limit := maxTextRunes
	if short, ok := got.(interface{ maxText() int }); ok {
		limit = short.maxText()
	}
	text := b.text(limit)
	c.pictures = slices.DeleteFunc(c.pictures, func(p render.Picture) bool { return len(p.Data) > c.largestPicture() })
	a := Result{Structured: structured}
	a.Text, a.Pictures = fitPictures(text, c.pictures, len(structured))
	// Some hosts drop the pictures of an error, or show them to the model as base64. So an answer
	// with a picture is no error to the host; its text still begins with the error.
	a.IsError = out.Error != nil && len(a.Pictures) == 0
	return a
}

// readsPicturesAsText are the clients that give their model the base64 of a picture as text.
var readsPicturesAsText = []string{"google-adk", "ai-sdk-mcp-client"}

// largestPicture is how many bytes of a picture the call's answer may have. Of larger ones the text
// names the files.
func (c *call) largestPicture() int {
	switch {
	case c.cfg.Pictures != 0:
		return c.cfg.Pictures
	case slices.Contains(readsPicturesAsText, c.client):
		return -1
	}
	return math.MaxInt
}

// fitPictures returns the pictures that fit into a result beside a text and used bytes, in order, and
// the text, which says how many do not. It prefers the newest ones.
func fitPictures(text string, pictures []render.Picture, used int) (string, []render.Picture) {
	first := len(pictures)
	if first > 0 {
		used += jsonLen(text)
	}
	for first > 0 {
		size := len(pictures[first-1].Data)*4/3 + 200
		if used+size > maxResultBytes {
			break
		}
		used += size
		first--
	}
	if first > 0 {
		text = plain.Count(first, "picture") + " did not fit into this result; the files are named below.\n" + text
	}
	return text, pictures[first:]
}

// merge encodes what answers have in common and the payload as one JSON object.
func merge(out any, got payload) (json.RawMessage, error) {
	a, err := json.Marshal(out)
	if err != nil || got == nil {
		return a, err
	}
	b, err := json.Marshal(got)
	switch {
	case err != nil || len(b) <= len("{}"):
		return a, err
	case len(a) <= len("{}"):
		return b, nil
	}
	a[len(a)-1] = ','
	return append(a, b[1:]...), nil
}

func jsonLen(s string) int {
	b, _ := json.Marshal(s)
	return len(b)
}

func (o Outcome) text(b *words) {
	if o.Error != nil {
		fmt.Fprintf(b, "Error (%s): %s\n", o.Error.Code, o.Error.Message)
		if o.Error.Hint != "" {
			fmt.Fprintf(b, "Next step: %s\n", o.Error.Hint)
		}
	}
	if o.Warning != "" {
		fmt.Fprintf(b, "Warning: %s\n", o.Warning)
	}
}

// trace adds the traceback, after all that the code printed before it.
func (o Outcome) trace(b *words) {
	if o.Error != nil {
		b.quote("traceback", strings.TrimRight(o.Error.Traceback, "\n"))
	}
}

// fit returns the first items, as many as a model's answer has room for; a person gets all.
func fit[T any](c *call, items []T) []T {
	if c.person != nil {
		return items
	}
	return firsts(items)
}

// firsts is fitList for callers that need not know whether it dropped any.
func firsts[T any](items []T) []T {
	kept, _ := fitList(items)
	return kept
}

// fitList returns the first items whose JSON fits into maxListBytes, and whether it dropped
// any.
func fitList[T any](items []T) (kept []T, cut bool) {
	used := 0
	for i := range items {
		b, err := json.Marshal(items[i])
		if used += len(b) + 1; err != nil || used > maxListBytes {
			return items[:i:i], true
		}
	}
	if items == nil {
		items = []T{}
	}
	return items, false
}

// words is the text of an answer under construction: first lines of the relay's own, then what
// the VM or a notebook says, in blocks. Code on a VM can print anything, also what looks like a
// line of the relay. So each block begins with a line that has a random word, which nobody knew
// when the block's text was made, and the last one ends with it.
//
// What is written to words itself must be the relay's. Names and short texts from outside are
// put into such a line with inline.
type words struct {
	strings.Builder
	blocks []block
	person *terminal.Streams // of the person who reads it; nil for a model
}

// block is a text from outside under a heading, or a table for a person.
type block struct {
	heading, text string
	table         *terminal.Table
}

// quote adds a block, unless its text is empty.
func (w *words) quote(heading, text string) {
	if text != "" {
		w.head(heading, text)
	}
}

// say is quote for what is usually short: a short line that quotation marks do not change is shown
// between them, on a line of the relay.
func (w *words) say(heading, text string) {
	line := strings.TrimSuffix(text, "\n")
	if quoted := plain.Quote(line); line != "" && runeCount(line) <= maxInline && quoted == "“"+line+"”" {
		fmt.Fprintf(w, "%s %s\n", heading, quoted)
		return
	}
	w.quote(heading, text)
}

// head adds a block even if its text is empty. The heading is one line.
func (w *words) head(heading, text string) {
	if heading = plain.Line(heading); runeCount(heading) > maxHeading { // cannot be: all parts are bounded
		heading = "text"
	}
	w.blocks = append(w.blocks, block{heading: heading, text: text})
}

// notes writes each note on a line. A person reads them beside the answer, on stderr.
func (w *words) notes(all []string) {
	for _, n := range all {
		if w.person != nil {
			fmt.Fprintf(w.person.Err, "note: %s\n", plain.Line(n))
			continue
		}
		fmt.Fprintf(w, "Note: %s\n", plain.Line(n))
	}
}

// Bounds of what text shortens, in characters.
const (
	leastQuoted = 500                      // that the blocks of an answer get, if they need them
	leastBlock  = 100                      // of a block that is shortened to head and tail; of a shorter one, the head is left
	fenceRunes  = 4 + 2 + fenceLen + 2 + 1 // around a heading, and the last line break of its text
	endRunes    = len("end") + fenceRunes
	leftOut     = 45    // what says how many lines or texts are left out
	maxHeading  = 4_000 // a heading is made of bounded parts, which are shorter together
)

// text returns all of it, as plain text of about most characters. Lines of the relay's own and
// headings are shown whole or not at all: half of one could end within a quotation, so that the
// rest of the quotation would look like the relay's.
func (w *words) text(most int) string {
	said := endRunes
	for _, one := range w.blocks {
		said += runeCount(one.heading) + fenceRunes + runeCount(one.text)
	}
	own := wholeLines(plain.Text(w.String()), max(most-min(said, leastQuoted), leastQuoted))
	if len(w.blocks) == 0 {
		return own
	}
	return ensureLine(own) + fenced(shortened(w.blocks, max(most-runeCount(own), leastQuoted)), strings.ToLower(rand.Text()[:fenceLen]))
}

// wholeLines returns the first lines of a text that have at most most characters together, but at
// least one, and says how many lines it leaves out.
func wholeLines(text string, most int) string {
	if runeCount(text) <= most {
		return text
	}
	var b strings.Builder
	lines, used := strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n"), 0
	for i, line := range lines {
		if used += runeCount(line); used > most-leftOut && i > 0 {
			fmt.Fprintf(&b, "[… %s of this answer left out …]\n", plain.Count(len(lines)-i, "more line"))
			break
		}
		b.WriteString(line)
	}
	return b.String()
}

// shortened returns the blocks with texts that have about most characters together, headings
// included. If even the headings do not fit, the last blocks are left out.
func shortened(blocks []block, most int) []block {
	var needs []int
	most -= endRunes + leftOut
	for i, one := range blocks {
		most -= runeCount(one.heading) + fenceRunes
		if most < 0 && i > 0 {
			blocks = append(slices.Clone(blocks[:i]), block{heading: plain.Count(len(blocks)-i, "more text") + " left out"})
			break
		}
		needs = append(needs, runeCount(one.text))
	}
	fresh := slices.Clone(blocks)
	for i, n := range render.FairShares(max(most, 0), needs...) {
		switch {
		case n >= needs[i]:
		case n >= leastBlock:
			fresh[i].text, _ = render.Clip(fresh[i].text, n)
		default:
			fresh[i].text = string([]rune(fresh[i].text)[:max(n-1, 0)]) + "…"
		}
	}
	return fresh
}

// fenceLen is the length of the random word: 30 bits.
const fenceLen = 6

// fenced returns the blocks between their lines.
func fenced(blocks []block, word string) string {
	var b strings.Builder
	for _, one := range blocks {
		fmt.Fprintf(&b, "--- %s [%s]\n%s", one.heading, word, ensureLine(plain.Text(one.text)))
	}
	fmt.Fprintf(&b, "--- end [%s]\n", word)
	return b.String()
}

func runeCount(s string) int { return strings.Count(s, "") - 1 }

// inline returns a name or a short text from outside for a line of the relay.
func inline(s string) string { return plain.Word(plain.Clip(s, maxInline)) }

// inlineList is inline of several texts: the first ones, shortened further, and the number of the
// others.
func inlineList(all []string) string {
	shown := make([]string, 0, maxListed)
	for _, each := range all[:min(len(all), maxListed)] {
		shown = append(shown, plain.Word(plain.Clip(each, maxListedRunes)))
	}
	if more := len(all) - maxListed; more > 0 {
		shown = append(shown, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(shown, ", ")
}

// Bounds of inlineList.
const (
	maxListed      = 10
	maxListedRunes = 60
)

// maxInline is how many characters of a text from outside a line of the relay has at most.
const maxInline = 300

func ensureLine(s string) string {
	if s == "" || strings.HasSuffix(s, "\n") {
		return s
	}
	return s + "\n"
}
