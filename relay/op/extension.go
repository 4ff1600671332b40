package op

import (
	"fmt"
	"strings"

	"colabrelay/shared/lazy"
)

// The hints of all packages name the commands of the command line. An extension of an MCP host
// brings the relay without it, and has a field for the pairing string instead.
var (
	runPair = lazy.Regexp("run `colab-relay pair`(?: in a terminal)?(?: on this computer)? and (to )?paste (it|[^,.;]*?)(?: there)?([,.;]|$)")
	pairCmd = lazy.Regexp("(?i)(run )`colab-relay pair`")
	printed = strings.NewReplacer("run the cell that `colab-relay bootstrap` prints", "run the cell of the release's notebook", "; for a machine that you reach by SSH, run `colab-relay ssh HOST`", "", "the MCP host's configuration (the relay's env block)", "the extension's settings")
)

// inExtension returns p in the words of an extension, whose field for the pairing string has
// that name; p itself if there is none.
func inExtension(field string, p *Problem) *Problem {
	if field == "" || p == nil {
		return p
	}
	into := fmt.Sprintf("into %q in the extension's settings", field)
	for _, text := range []*string{&p.Message, &p.Hint} {
		s := runPair().ReplaceAllString(*text, "${1}paste $2 "+strings.ReplaceAll(into, "$", "$$")+"$3")
		s = pairCmd().ReplaceAllString(s, "paste its pairing string "+strings.ReplaceAll(into, "$", "$$"))
		s = strings.ReplaceAll(s, "COLAB_PAIRING", fmt.Sprintf("%q in the extension's settings", field))
		*text = printed.Replace(s)
	}
	if strings.Contains(p.Message+p.Hint, "`colab-relay ") {
		p.Hint = strings.TrimSpace(p.Hint + " The extension brings no command `colab-relay`: to run commands, the user installs the relay's archive, too.")
	}
	return p
}
