package bootstrap

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"colabrelay/shared/enrollment"
	"colabrelay/shared/lazy"
)

// The parts of the enrollment's cells, of which the first is in the executor's cell too.
// Each is a Python file; cellOf makes a cell of them.
var (
	//go:embed fetch.py
	fetchPy string
	//go:embed enrollment.py
	enrollmentPy string
	//go:embed enroll_start.py
	enrollStartPy string
	//go:embed enroll_finish.py
	enrollFinishPy string
	//go:embed enroll_status.py
	enrollStatusPy string
)

// The kinds of tunnel that a start cell can prepare.
const (
	TunnelNgrok       = "ngrok"       // the relay's grant holds the token
	TunnelSecrets     = "secrets"     // ngrok with the token in Colab's Secrets, which the page asks the person for; without one, cloudflared
	TunnelCloudflared = "cloudflared" // the cell fetches the program if the VM has none
)

// The cloudflared that a start cell fetches. Its digests stand in the notes of its release
// and, alike, in the sources of at least six other projects (looked up in November 2026).
const (
	cloudflaredURL   = "https://github.com/cloudflare/cloudflared/releases/download/2026.9.3"
	cloudflaredAMD64 = "77e26d8d900e0b8469f416239d14b5f296525fdf79fee6f511ef55609e3fbac2"
	cloudflaredARM64 = "aaeb2d7d0da3614634c7e03ab13487a1522c2e79165ed2929cfe23d5e95b326d"
)

// Start says what a start cell prepares. All of it is public.
type Start struct {
	Job      string // enrollment.Offer.JobID
	RelayKey string // enrollment.Offer.PublicKey
	Tunnel   string // TunnelNgrok, TunnelSecrets or TunnelCloudflared
}

// ReadyCell returns a harmless cell. ReadEnrollment finds Ready in its output; an empty
// output means that the page has not run it.
func ReadyCell(job string) (string, error) {
	if err := enrollment.CheckJobID(job); err != nil {
		return "", err
	}
	return "#@title colab-relay: waits for the VM; this cell is removed automatically\n" +
		`print('` + marker + `{"job": "` + job + `", "ready": true}')` + "\n", nil
}

// EnrollStart returns the cell that fetches the release's executor, checks its SHA-256,
// starts `executor enroll` detached and shows that process's public key. Running it again
// for the same job shows the same key while the process lives.
func EnrollStart(r Release, s Start) (string, error) {
	if err := r.check(); err != nil {
		return "", err
	}
	if err := errors.Join(enrollment.CheckJobID(s.Job), enrollment.CheckPublicKey(s.RelayKey)); err != nil {
		return "", err
	}
	if kinds := []string{TunnelNgrok, TunnelSecrets, TunnelCloudflared}; !slices.Contains(kinds, s.Tunnel) {
		return "", fmt.Errorf("tunnel %q: must be one of %s", s.Tunnel, strings.Join(kinds, ", "))
	}
	return cellOf("starts the executor; this cell is removed automatically", r.fill(
		"@JOB@", s.Job, "@RELAY_KEY@", s.RelayKey, "@TUNNEL@", s.Tunnel,
		"@CLOUDFLARED@", cloudflaredURL, "@CLOUDFLARED_AMD64@", cloudflaredAMD64, "@CLOUDFLARED_ARM64@", cloudflaredARM64,
	), fetchPy, enrollmentPy, enrollStartPy), nil
}

// EnrollFinish returns the cell that hands over the sealed grant, waits until the executor
// is reachable, and shows its answer. Running it again shows the same answer while the
// executor lives.
func EnrollFinish(job, sealed string) (string, error) {
	if err := enrollment.CheckJobID(job); err != nil {
		return "", err
	}
	if err := enrollment.CheckSealed(sealed); err != nil {
		return "", err
	}
	return cellOf("pairs the executor; this cell is removed automatically", strings.NewReplacer("@JOB@", job, "@GRANT@", sealed), enrollmentPy, enrollFinishPy), nil
}

// StatusCell returns a cell that runs for as long as the executor of the job, and whose
// stop stops it. A page in which it runs does not count as idle.
func StatusCell(job string) (string, error) {
	if err := enrollment.CheckJobID(job); err != nil {
		return "", err
	}
	return cellOf("the executor runs; stop this cell to stop it", strings.NewReplacer("@JOB@", job), enrollmentPy, enrollStatusPy), nil
}

// ownImport is an import of one of the parts, all of which are in the cell.
var ownImport = lazy.Regexp(`^from (enrollment|fetch) import `)

// cellOf makes one function of Python files, so that the cell leaves no name behind in the
// notebook and overwrites none.
func cellOf(title string, values *strings.Replacer, parts ...string) string {
	var cell strings.Builder
	cell.WriteString("#@title colab-relay: " + title + "\n")
	cell.WriteString("def colab_relay_cell():\n")
	for line := range strings.Lines(values.Replace(strings.Join(parts, "\n\n"))) {
		switch {
		case ownImport().MatchString(line):
			continue
		case strings.TrimSpace(line) != "":
			cell.WriteString("    ")
		}
		cell.WriteString(line)
	}
	cell.WriteString("\n\ntry:\n    colab_relay_cell()\nfinally:\n    del colab_relay_cell\n")
	return cell.String()
}

const (
	// marker begins the one line of a cell's output that is meant for the relay. JSON follows.
	marker = "colab-relay-enrollment: "
	// maxMarkerBytes bounds that line. An answer needs less than 1 KiB.
	maxMarkerBytes = 8 << 10
)

// ErrNoReport is output without a line for the relay: the cell did not run, or it was cut
// short before it could say why.
var ErrNoReport = errors.New("the cell's output holds no report")

// CellError is the sentence with which a cell reports that it could not go on. The VM wrote
// it: it must be made safe before a person or a model reads it.
type CellError struct{ Sentence string }

func (e *CellError) Error() string { return e.Sentence }

// Report is what a cell reports to the relay. Exactly one of Ready, Key and Answer is set.
type Report struct {
	Ready  bool               `json:"ready"`  // by ReadyCell
	Key    string             `json:"key"`    // by EnrollStart: the executor's public key
	Tunnel string             `json:"tunnel"` // with Key: the tunnel that the VM is prepared for, a value for enrollment.Grant
	Answer *enrollment.Answer `json:"answer"` // by EnrollFinish
}

type markerLine struct {
	Report
	Job   string `json:"job"`
	Error string `json:"error"`
}

// ReadEnrollment finds the report of a job's cell in its output, which may hold anything
// else too. The last report counts. It fails with *CellError or ErrNoReport.
func ReadEnrollment(job, output string) (Report, error) {
	var last *markerLine
	for line := range strings.Lines(output) {
		text, found := strings.CutPrefix(strings.TrimSpace(line), marker)
		if !found || len(text) > maxMarkerBytes {
			continue
		}
		var m markerLine
		if json.Unmarshal([]byte(text), &m) == nil && m.Job == job {
			last = &m
		}
	}
	if last == nil {
		return Report{}, ErrNoReport
	}
	return last.report()
}

func (m *markerLine) report() (Report, error) {
	switch r := m.Report; {
	case m.Error != "":
		return Report{}, &CellError{m.Error}
	case r == (Report{Ready: true}), r == (Report{Answer: m.Answer}) && m.Answer != nil:
		return r, nil
	case r == (Report{Key: m.Key, Tunnel: m.Tunnel}) && m.Tunnel != "" && enrollment.CheckPublicKey(m.Key) == nil:
		return r, nil
	}
	return Report{}, fmt.Errorf("%w that can be read: use a relay and an executor of the same release", ErrNoReport)
}
