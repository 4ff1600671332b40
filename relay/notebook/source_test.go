package notebook

import (
	"strings"
	"testing"
	"testing/quick"

	"colabrelay/relay/plain"
)

// Whatever a cell has: what is shown of it, written back, is refused or is the cell.
func TestASourceThatIsWrittenBackIsRefusedOrTheSame(t *testing.T) {
	pieces := []string{"a", "\n", "\r\n", "\r", "\t", " ", "\f", "\x1b", "[31m", "\u2028", "\u200d", "👁", "\ufe0f", "\ue000", "ü", "\u0085", "]0;"}
	back := func(choices []uint8) bool {
		var b strings.Builder
		for _, c := range choices {
			b.WriteString(pieces[int(c)%len(pieces)])
		}
		got := WithLineEnds(b.String(), plain.Text(b.String()))
		return Loss(b.String(), got) != "" || got == b.String()
	}
	if err := quick.Check(back, &quick.Config{MaxCount: 5_000}); err != nil {
		t.Error(err)
	}
}
