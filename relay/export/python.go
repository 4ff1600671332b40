package export

import (
	"context"
	"fmt"
	"strings"
)

// python makes a program with a cell for each run, as editors know them by "# %%". Cell magics,
// lines of magics and of commands become comments, because they are not Python.
func python(_ context.Context, _ string, runs []Run) (document, error) {
	var b strings.Builder
	for i, r := range runs {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "# %%%% %s\n", r.title())
		source := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(r.source()) // Python ends lines at \r too
		foreign := strings.HasPrefix(strings.TrimSpace(source), "%%")               // another language
		for line := range strings.SplitSeq(source, "\n") {
			if foreign || strings.HasPrefix(line, "%") || strings.HasPrefix(line, "!") {
				b.WriteString("# ")
			}
			b.WriteString(line + "\n")
		}
	}
	return document{text: []byte(b.String())}, nil
}
