package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"colabrelay/relay/client"
	"colabrelay/relay/nbrun"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
)

// check compares the answer, the report and the notebook with what ran on the VM.
func (n *killedNotebook) check(a harness.Answer) {
	n.t.Helper()
	n.checkMarks()
	report := n.report(a)
	n.checkAttempts(report)
	if want := n.fails < 0; (a.Fields["success"] == true) != want || a.IsError == want || (a.String("status") == "succeeded") != want {
		n.t.Errorf("success is %v, status %s, isError %v; want success %v: %s", a.Fields["success"], a.String("status"), a.IsError, want, a.Text)
	}
	life := n.checkOutputs()
	var inLife []string
	for _, m := range n.marks() {
		if m[0] == life {
			inLife = append(inLife, m[1])
		}
	}
	var want []string
	for cell := range n.parent {
		if !n.skipped(cell) {
			want = append(want, fmt.Sprint(cell))
		}
	}
	if !slices.Equal(inLife, want) {
		n.t.Errorf("in the kernel whose outputs are in the notebook ran %v, want %v", inLife, want)
	}
	n.checkReport(report)
}

// checkMarks: no cell ran twice in one kernel.
func (n *killedNotebook) checkMarks() {
	n.t.Helper()
	seen := map[[2]string]bool{}
	for _, m := range n.marks() {
		if seen[m] {
			n.t.Errorf("cell %s ran twice in one kernel", m[1])
		}
		seen[m] = true
	}
}

// notebookOutput is an output in the file, as far as it is checked.
type notebookOutput struct {
	Type  string   `json:"output_type"`
	Text  []string `json:"text"`
	EName string   `json:"ename"`
}

// checkOutputs: the outputs are those of the code, all made in one kernel, which it returns.
func (n *killedNotebook) checkOutputs() (life string) {
	n.t.Helper()
	var file struct {
		Cells []struct {
			Source  []string         `json:"source"`
			Count   *int             `json:"execution_count"`
			Outputs []notebookOutput `json:"outputs"`
		} `json:"cells"`
	}
	text, err := os.ReadFile(n.path())
	must(n.t, err)
	must(n.t, json.Unmarshal(text, &file))
	last := 0
	for cell, c := range file.Cells {
		if n.skipped(cell) {
			if len(c.Outputs) != 0 { // it may have run before its kernel was killed, but not before it failed
				n.t.Errorf("the skipped cell %d has outputs: %+v", cell, c.Outputs)
			}
			continue
		}
		printed := ""
		for _, o := range c.Outputs {
			printed += strings.Join(o.Text, "")
		}
		fields := strings.Fields(printed)
		if len(fields) != 4 || fields[1] != fmt.Sprint(cell) || fields[3] != fmt.Sprint(n.depth(cell)) {
			n.t.Errorf("the outputs of cell %d are %+v", cell, c.Outputs)
			continue
		}
		if life == "" {
			life = fields[2]
		}
		if fields[2] != life {
			n.t.Errorf("cell %d shows what ran in another kernel than the cells before it", cell)
		}
		if raised := c.Outputs[len(c.Outputs)-1]; (raised.EName == "ValueError") != (cell == n.fails) {
			n.t.Errorf("the last output of cell %d is %+v", cell, raised)
		}
		if c.Count == nil || *c.Count <= last {
			n.t.Errorf("cell %d has the execution count %v after %d", cell, c.Count, last)
			continue
		}
		last = *c.Count
	}
	return life
}

// depth is the value that a cell prints.
func (n *killedNotebook) depth(cell int) (depth int) {
	for p := n.parent[cell]; p >= 0; p = n.parent[p] {
		depth++
	}
	return depth
}

// report is the report that the answer names.
func (n *killedNotebook) report(a harness.Answer) (report nbrun.Report) {
	n.t.Helper()
	text, err := os.ReadFile(strings.TrimSuffix(a.String("report_path"), ".md") + ".json")
	must(n.t, err)
	must(n.t, json.Unmarshal(text, &report))
	if len(report.Cells) != len(n.parent) || string(report.Status) != a.String("status") {
		n.t.Fatalf("the report has %d cells and the status %s", len(report.Cells), report.Status)
	}
	return report
}

// checkReport: every cell has the status that follows from the notebook.
func (n *killedNotebook) checkReport(report nbrun.Report) {
	n.t.Helper()
	if report.Success != (n.fails < 0) {
		n.t.Errorf("the report's success is %v", report.Success)
	}
	for cell, r := range report.Cells {
		if r.Status != n.status(cell) {
			n.t.Errorf("cell %d is reported as %s, want %s: %s", cell, r.Status, n.status(cell), r.Why)
		}
		if r.Status == nbrun.CellSkipped {
			if len(r.SkippedBecause) == 0 {
				n.t.Errorf("the report does not say why cell %d was skipped", cell)
			}
			continue
		}
		if len(r.Attempts) == 0 || r.Attempts[len(r.Attempts)-1].Status != contract.Status(r.Status) {
			n.t.Errorf("cell %d is %s after %+v", cell, r.Status, r.Attempts)
		}
	}
}

// checkAttempts: every attempt has the status that the executor gives, and what succeeded has
// left its line.
func (n *killedNotebook) checkAttempts(report nbrun.Report) {
	n.t.Helper()
	c := relayClient(n.t, n.l.executor)
	defer c.Close()
	marks := n.marks()
	for cell, r := range report.Cells {
		for _, at := range r.Attempts {
			n.checkAttempt(c, cell, at, marks)
		}
	}
}

func (n *killedNotebook) checkAttempt(c *client.Client, cell int, at nbrun.Attempt, marks [][2]string) {
	n.t.Helper()
	if at.ExecutionID == "" {
		return
	}
	x, err := c.Execution(n.t.Context(), at.ExecutionID, 0, 0, contract.MaxReadBytes)
	must(n.t, err)
	unread := at.Status == contract.StatusLost // the kernel was replaced before the end was read
	if at.Status != "" && !unread && at.Status != x.Status {
		n.t.Errorf("cell %d: %s is reported as %s, the executor says %s", cell, at.ExecutionID, at.Status, x.Status)
	}
	if at.Status != contract.StatusSucceeded {
		return
	}
	var printed string
	for _, e := range x.Events {
		printed += e.Text
	}
	if fields := strings.Fields(printed); len(fields) != 4 || !slices.Contains(marks, [2]string{fields[2], fmt.Sprint(cell)}) {
		n.t.Errorf("cell %d is reported as succeeded in %s, which printed %q", cell, at.ExecutionID, printed)
	}
}
