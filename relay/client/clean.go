package client

import (
	"regexp"

	"colabrelay/relay/plain"
)

// rules say how the strings of an answer are cleaned before anybody sees them: each becomes
// one plain line, except for these fields.
var rules = map[string]plain.Rule{
	"": plain.Line,
	// Texts of several lines.
	"EValue": plain.Text, "Traceback": plain.Text, "Preview": plain.Text,
	"Prompt": promptLine, // of the run that an execution waits for
	// People paste commands with this id into a shell.
	"ExecutionID": executionID,
	// Output of the user's code is cleaned when it is rendered, by relay/render or for a
	// terminal.
	"Events": nil,
	// Names of files and of their states must go back to the executor, and to the laptop's
	// disk, unchanged. Code that shows one cleans it.
	"Files": nil, "Path": nil, "ETag": nil, "File": nil,
}

// clean cleans the strings of an answer.
func clean(answer any) { plain.Deep(answer, rules) }

// executionID returns an id that an executor may have created, or else nothing.
func executionID(id string) string {
	if !validID(id) || id[0] == '-' {
		return ""
	}
	return id
}

// versionForm matches the version of a release.
var versionForm = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z.+_-]{0,39}$`)

// release returns an executor's version if it looks like one.
func release(version string) string {
	if versionForm.MatchString(version) {
		return version
	}
	return "of unknown version"
}
