package client

import (
	"regexp"

	"colabrelay/relay/plain"
	"colabrelay/shared/contract"
)

// rules say what becomes of the strings of an answer before anybody sees them: one plain
// line, but for these fields.
var rules = map[string]plain.Rule{
	"": plain.Line,
	// Texts of several lines.
	"EValue": plain.Text, "Traceback": plain.Text, "Preview": plain.Text,
	// What the user's code printed is rendered, by relay/render or for a terminal, and
	// made plain there.
	"Events": nil,
	// Names of files and of their states go back to the executor, and to the laptop's
	// disk, to the letter. Whoever shows one makes it plain.
	"Files": nil, "Path": nil, "ETag": nil, "File": nil,
}

// clean makes the strings of an answer plain.
func clean(answer any) { plain.Deep(answer, rules) }

// versionForm is what a release may call itself.
var versionForm = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z.+_-]{0,39}$`)

// release is an executor's version, as far as it looks like one.
func release(version string) string {
	if versionForm.MatchString(version) {
		return version
	}
	return "of unknown version"
}

// cleanError makes an executor's refusal plain.
func cleanError(e *contract.Error) *contract.Error {
	clean(e)
	return e
}
