// Package suggest finds what a person who mistyped a name probably meant.
//
// It compares names only, and must not know what they name. Start reading at Meant.
package suggest

import (
	"fmt"
	"strings"
)

// Meant returns ` (did you mean "status"?)` for the known name that is closest to what was
// typed, with a space before it; empty if none is close.
func Meant(typed string, known []string) string {
	if name := Closest(typed, known); name != "" {
		return fmt.Sprintf(" (did you mean %q?)", name)
	}
	return ""
}

// Closest returns the known name that is closest to what was typed: one that begins with
// it, or else one that at most a third of its characters, and at most 3, distinguish from
// it. It ignores case. It returns "" if there is none.
func Closest(typed string, known []string) string {
	typed = strings.ToLower(typed)
	best, least := "", min(3, len([]rune(typed))/3)+1
	for _, name := range known {
		lower := strings.ToLower(name)
		if len(typed) > 1 && strings.HasPrefix(lower, typed) {
			return name
		}
		if d := distance(typed, lower); d < least {
			best, least = name, d
		}
	}
	return best
}

// distance is the number of characters to insert, delete, replace or swap with their
// neighbour to make b of a (optimal string alignment).
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	var before, last []int
	row := make([]int, len(y)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(x); i++ {
		before, last, row = last, row, make([]int, len(y)+1)
		row[0] = i
		for j := 1; j <= len(y); j++ {
			cost := 1
			if x[i-1] == y[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(y)]
}
