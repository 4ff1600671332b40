package client

import (
	"regexp"

	"colabrelay/relay/plain"
	"colabrelay/shared/contract"
)

// rules say how the strings of an answer are cleaned before anybody sees them: each becomes
// one plain line, except for these fields.
var rules = map[string]plain.Rule{
	"": plain.Line,
	// Texts of several lines.
	"EValue": plain.Text, "Traceback": plain.Text, "Preview": plain.Text,
	"Prompt": promptLine, // of the run that an execution waits for
	"Status": status,
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

// statuses are those of executions, entries of jobs, kernels, uploads and executors.
var statuses = map[string]bool{
	string(contract.StatusQueued): true, string(contract.StatusRunning): true, string(contract.StatusWaitingForInput): true,
	string(contract.StatusSucceeded): true, string(contract.StatusFailed): true, string(contract.StatusTimedOut): true,
	string(contract.StatusInterrupted): true, string(contract.StatusCancelled): true, string(contract.StatusKernelDied): true,
	string(contract.StatusKernelRestarted): true, string(contract.StatusLost): true,
	string(contract.KernelStarting): true, string(contract.KernelIdle): true, string(contract.KernelBusy): true, string(contract.KernelDead): true,
	string(contract.UploadReceiving): true, string(contract.UploadHashing): true, string(contract.UploadCommitted): true,
	string(contract.StepWaits): true, string(contract.StepSkipped): true, string(contract.StepNotRun): true,
	"": true, "ok": true,
}

// status returns a status of the contract, or "unknown" for any other text, which could be a
// sentence for a person or a model.
func status(s string) string {
	if statuses[s] {
		return s
	}
	return "unknown"
}

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
