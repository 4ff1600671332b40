package op

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strings"

	"colabrelay/relay/plain"
	"colabrelay/relay/render"
	"colabrelay/relay/terminal"
)

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
