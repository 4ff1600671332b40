package main

import (
	"fmt"
	"strings"
	"time"

	"colabrelay/relay/plain"
	"colabrelay/relay/progress"
	"colabrelay/relay/transfer"
)

// transferAnswer is a finished transfer as JSON, with the fields of the answers of
// download_from_colab and upload_to_colab.
type transferAnswer struct {
	Runtime          string   `json:"runtime"`
	LocalPath        string   `json:"local_path,omitempty"`  // of a download
	RemotePath       string   `json:"remote_path,omitempty"` // of an upload
	Status           string   `json:"status"`                // done, or unchanged if the same file existed
	SizeBytes        int64    `json:"size_bytes"`
	SHA256           string   `json:"sha256,omitempty"` // of a single file
	ResumedFrom      int64    `json:"resumed_from"`
	TransferredBytes int64    `json:"transferred_bytes"`
	Files            int      `json:"files"`
	Skipped          int      `json:"skipped"`
	Notes            []string `json:"notes,omitempty"`
}

// transferred returns the JSON form of a finished transfer.
func transferred(runtime string, upload bool, r transfer.Result) transferAnswer {
	a := transferAnswer{Runtime: runtime, LocalPath: r.Path, Status: "done", SizeBytes: r.SizeBytes, SHA256: r.SHA256,
		ResumedFrom: r.ResumedFrom, TransferredBytes: r.MovedBytes, Files: r.Files, Skipped: r.Skipped, Notes: r.Notes}
	if upload {
		a.LocalPath, a.RemotePath = "", r.Path
	}
	if r.Skipped == r.Files {
		a.Status = "unchanged"
	}
	return a
}

// summary is the line that a finished transfer prints: its path, size and duration.
func summary(r transfer.Result, took time.Duration) string {
	parts := []string{progress.Bytes(r.SizeBytes)}
	if r.IsDir {
		parts = []string{plain.Count(r.Files, "file"), progress.Bytes(r.SizeBytes)}
		if r.Skipped > 0 {
			parts = append(parts, fmt.Sprintf("%d unchanged", r.Skipped))
		}
	}
	switch {
	case r.Skipped == r.Files && !r.IsDir:
		parts = append(parts, "unchanged")
	case r.ResumedFrom > 0:
		parts = append(parts, fmt.Sprintf("in %s, resumed from %s", progress.Duration(took), progress.Bytes(r.ResumedFrom)))
	default:
		parts = append(parts, "in "+progress.Duration(took))
	}
	if r.SHA256 != "" {
		parts = append(parts, "SHA-256 "+r.SHA256)
	}
	return plain.Line(r.Path) + ": " + strings.Join(parts, ", ")
}
