package plain

import (
	"runtime"
	"strings"
)

// ShellWord quotes a word of a command that is shown, for the shell of this computer, if it needs
// that.
func ShellWord(word string) string {
	if runtime.GOOS == "windows" {
		return windowsWord(word)
	}
	return POSIXWord(word)
}

// ShellWords is ShellWord for each of the words.
func ShellWords(words []string) []string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = ShellWord(word)
	}
	return quoted
}

// POSIXWord quotes a word for a shell such as sh if it needs that.
func POSIXWord(word string) string {
	if isShellWord(word) && !strings.Contains(word, `\`) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

func windowsWord(word string) string {
	if isShellWord(word) {
		return word
	}
	return `"` + word + `"`
}

func isShellWord(word string) bool {
	return word != "" && !strings.ContainsAny(word, " \t\n\"'`$&|;<>()*?[]#~!{}")
}
