package filename

import (
	"slices"
	"strings"

	"colabrelay/shared/lazy"
)

// Obeyed reports whether programs on a person's computer may obey a file or folder because of its
// name: it begins with a dot, as .git, .envrc and .vscode do, or is an instruction or settings
// file of agents. Case, joiners, and dots and spaces at the end do not count, because some file
// systems ignore them. A short name such as GIT~1 counts, because Windows may take it for .git.
func Obeyed(name string) bool {
	name = bare(name)
	return strings.HasPrefix(name, ".") || shortForm().MatchString(name) ||
		slices.ContainsFunc(agentFiles, func(file string) bool { return strings.EqualFold(file, name) })
}

// ObeyedFile reports whether a file, not a folder, is Obeyed or is named HEAD: Git takes a folder with
// such a file, objects and refs for a repository, and runs the commands that its config names.
func ObeyedFile(name string) bool {
	return Obeyed(name) || strings.EqualFold(bare(name), "HEAD")
}

// bare returns a name without what some file systems ignore, but for the case of letters.
func bare(name string) string {
	return strings.TrimRight(strings.Map(func(r rune) rune {
		if Joiner(r) {
			return -1
		}
		return r
	}, name), ". ")
}

// agentFiles are what programs that run agents read in a folder that they are started in, and
// that does not begin with a dot.
var agentFiles = []string{
	"AGENT.md", "AGENTS.md", "AGENTS.override.md", "CLAUDE.md", "CLAUDE.local.md", "CODEX.md", "CRUSH.md", "GEMINI.md", "QWEN.md", "WARP.md",
	"crush.json", "opencode.json", "opencode.jsonc",
}

// shortForm matches the names that Windows gives to files besides their own.
var shortForm = lazy.Regexp(`^[^.~]{1,6}~[0-9]{1,6}(\.[^.]{1,3})?$`)

// ObeyedPart returns the first Obeyed part of a relative path with slashes, or "".
func ObeyedPart(path string) string {
	for part := range strings.SplitSeq(path, "/") {
		if part != "." && Obeyed(part) {
			return part
		}
	}
	return ""
}
