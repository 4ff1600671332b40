package bootstrap

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"colabrelay/shared/enrollment"
)

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
	Ready  bool               // by ReadyCell
	Key    string             // by EnrollStart: the executor's public key
	Tunnel string             // with Key: the tunnel that the VM is prepared for, a value for enrollment.Grant
	Answer *enrollment.Answer // by EnrollFinish
}

type markerLine struct {
	Job    string             `json:"job"`
	Ready  bool               `json:"ready"`
	Key    string             `json:"key"`
	Tunnel string             `json:"tunnel"`
	Answer *enrollment.Answer `json:"answer"`
	Error  string             `json:"error"`
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
	r := Report{Ready: m.Ready, Key: m.Key, Tunnel: m.Tunnel, Answer: m.Answer}
	switch {
	case m.Error != "":
		return Report{}, &CellError{m.Error}
	case r == Report{Ready: true}, r == Report{Answer: m.Answer} && m.Answer != nil:
		return r, nil
	case r == Report{Key: m.Key, Tunnel: m.Tunnel} && m.Tunnel != "" && enrollment.CheckPublicKey(m.Key) == nil:
		return r, nil
	}
	return Report{}, fmt.Errorf("%w that can be read: use a relay and an executor of the same release", ErrNoReport)
}
