package notebook

import (
	"strings"
	"testing"
	"testing/quick"

	"colabrelay/relay/plain"
	"colabrelay/shared/tier"
)

// Whatever a cell has: what is shown of it, written back, is refused or is the cell.
func TestASourceThatIsWrittenBackIsRefusedOrTheSame(t *testing.T) {
	tier.Long(t)
	pieces := []string{"a", "\n", "\r\n", "\r", "\t", " ", "\f", "\x1b", "[31m", "\u2028", "\u200d", "👁", "\ufe0f", "\ue000", "ü", "\u0085", "]0;"}
	back := func(choices []uint8) bool {
		var b strings.Builder
		for _, c := range choices {
			b.WriteString(pieces[int(c)%len(pieces)])
		}
		got := WithLineEnds(b.String(), plain.Text(b.String()))
		return Loss(b.String(), got) != "" || got == b.String()
	}
	if err := quick.Check(back, &quick.Config{MaxCount: 20_000}); err != nil {
		t.Error(err)
	}
}

func TestHiddenCharactersAreNamedInABoundedLine(t *testing.T) {
	for n, want := range map[int]string{1: "U+0001", 5: "U+0001, U+0002, U+0003, U+0004, U+0005", 6: "U+0001, U+0002, U+0003, U+0004, U+0005, …", 5_000: "U+0001, U+0002, U+0003, U+0004, U+0005, …"} {
		var all []rune
		for i := range n {
			all = append(all, rune(1+i), 1)
		}
		if got := codePoints(all); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
}
