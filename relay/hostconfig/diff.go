package hostconfig

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// maxCompared bounds the lines between the first change and the last that are compared
// one by one; past it all of them are shown.
const maxCompared = 2000

// Diff is the lines that go and come, without those around them: other servers'
// entries hold tokens, which need not be on the screen.
func (c Change) Diff() string {
	a, b := lines(c.Old), lines(c.New)
	same := 0
	for same < min(len(a), len(b)) && a[same] == b[same] {
		same++
	}
	tail := 0
	for tail < min(len(a), len(b))-same && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	var out strings.Builder
	fmt.Fprintf(&out, "--- %s\n", c.Path)
	at := -1
	for _, step := range walk(a[same:len(a)-tail], b[same:len(b)-tail]) {
		if step.line != at {
			fmt.Fprintf(&out, "@@ line %d\n", same+step.line+1)
		}
		at = step.line
		if step.sign == '+' {
			at++
		}
		fmt.Fprintf(&out, "%c %s\n", step.sign, step.text)
	}
	return out.String()
}

func lines(text []byte) []string {
	var all []string
	for line := range bytes.Lines(text) {
		all = append(all, strings.TrimRight(string(line), "\r\n"))
	}
	return all
}

// step is one line that goes or comes; line is where it stands in the new text.
type step struct {
	sign byte
	line int
	text string
}

// walk finds the longest lines both have and gives the others.
func walk(a, b []string) []step {
	var steps []step
	if len(a) > maxCompared || len(b) > maxCompared {
		for _, text := range a {
			steps = append(steps, step{'-', 0, text})
		}
		for i, text := range b {
			steps = append(steps, step{'+', i, text})
		}
		return steps
	}
	// length[i][j] is how many lines a[i:] and b[j:] share.
	length := slices.Repeat([][]int{nil}, len(a)+1)
	for i := len(a); i >= 0; i-- {
		length[i] = make([]int, len(b)+1)
		for j := len(b) - 1; j >= 0 && i < len(a); j-- {
			if a[i] == b[j] {
				length[i][j] = length[i+1][j+1] + 1
			} else {
				length[i][j] = max(length[i+1][j], length[i][j+1])
			}
		}
	}
	for i, j := 0, 0; i < len(a) || j < len(b); {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && length[i+1][j] >= length[i][j+1]:
			steps = append(steps, step{'-', j, a[i]})
			i++
		default:
			steps = append(steps, step{'+', j, b[j]})
			j++
		}
	}
	return steps
}
