package plain

import "fmt"

// Count returns a number and what it counts, in the plural unless n is 1: "1 file",
// "2 files".
func Count[N ~int | ~int64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
