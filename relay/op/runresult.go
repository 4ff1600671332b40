package op

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/plain"
	"colabrelay/relay/render"
	"colabrelay/shared/contract"
)

// Run is the answer of run_code_quick, run_code_long and get_execution.
type Run struct {
	Status           string          `json:"status"`       // queued, running, waiting_for_input, succeeded, failed, timed_out, interrupted, cancelled, kernel_died, kernel_restarted or lost
	ExecutionID      string          `json:"execution_id"` // id of the run on the VM, for get_execution
	Stdout           string          `json:"stdout"`       // what was printed; head and tail when it is long. Progress bars are folded
	Stderr           string          `json:"stderr"`
	Result           *string         `json:"result,omitzero"`             // value of the last expression as text; absent when there is none
	Outputs          []render.Output `json:"outputs,omitzero"`            // display outputs; PNG and JPEG pictures come as image content too
	ExecutionTimeSec *float64        `json:"execution_time_sec,omitzero"` // since it started, to its end or until now; absent while queued
	MemoryBeforeGB   *float64        `json:"memory_before_gb,omitzero"`   // memory in use on the VM when it started
	MemoryAfterGB    *float64        `json:"memory_after_gb,omitzero"`    // when it ended
	MemoryDeltaMB    *float64        `json:"memory_delta_mb,omitzero"`
	Truncated        bool            `json:"truncated"`                  // output is missing here; it starts at next_offset
	NextOffset       int64           `json:"next_offset"`                // where to continue reading: pass it to get_execution as offset
	NextCommand      string          `json:"next_command,omitempty"`     // what to call next, if the run has not ended or output is omitted
	QueuePosition    int             `json:"queue_position,omitempty"`   // number of runs before this one
	KernelID         string          `json:"kernel_id,omitempty"`        // the kernel that it ran in; a different one has none of its variables
	Behind           string          `json:"behind,omitempty"`           // with status queued: execution_id of the run that has the kernel
	InputPrompt      *string         `json:"input_prompt,omitempty"`     // what input() asks, with status waiting_for_input; provide_input answers
	SavedFiles       []render.File   `json:"saved_files,omitempty"`      // originals of pictures and full texts, on the relay's machine
	Notes            []string        `json:"notes,omitempty"`            // what could not be shown or saved, and why
	CheckpointSaved  *bool           `json:"checkpoint_saved,omitempty"` // with checkpoint_name: whether this answer was saved
	CheckpointPath   string          `json:"checkpoint_path,omitempty"`

	displayed string // traceback of an error that did not end the run

	password bool   // the prompt asks for a password
	page     bool   // of complete events, not head and tail
	inTab    bool   // it has no id, because Colab's page runs it, and no executor
	runtime  string // name of the runtime
	limit    int    // characters of the text
}

// maxText returns how many characters the text may have. A page omits nothing, and its
// events bound it.
func (r *Run) maxText() int {
	if r.page {
		return maxPageRunes
	}
	return r.limit
}

func newRun(e contract.Execution, v render.View) *Run {
	r := &Run{
		Status: string(e.Status), ExecutionID: e.ExecutionID,
		Stdout: v.Stdout, Stderr: v.Stderr, Outputs: append([]render.Output{}, v.Outputs...),
		Truncated: v.Truncated, NextOffset: v.NextOffset, QueuePosition: e.QueuePosition,
		KernelID: e.KernelID, SavedFiles: v.Files, Notes: v.Notes,
		ExecutionTimeSec: seconds(e),
	}
	if e.Status.OK() && e.Reason != "" { // the Problem of any other run has it
		r.Notes = append(slices.Clip(r.Notes), plain.Quote(brief(e.Reason)))
	}
	if v.HasResult {
		r.Result = &v.Result
	}
	if e.Status == contract.StatusWaitingForInput && v.Prompt != nil {
		r.InputPrompt, r.password = &v.Prompt.Text, v.Prompt.Password
	}
	if b := client.Behind(e); b != nil {
		r.Behind = b.ExecutionID
	}
	r.memory(e)
	return r
}

func (r *Run) memory(e contract.Execution) {
	if e.MemoryBeforeBytes == 0 {
		return
	}
	r.MemoryBeforeGB = round(float64(e.MemoryBeforeBytes)/(1<<30), 1000)
	if e.MemoryAfterBytes == 0 {
		return
	}
	r.MemoryAfterGB = round(float64(e.MemoryAfterBytes)/(1<<30), 1000)
	r.MemoryDeltaMB = round((float64(e.MemoryAfterBytes)-float64(e.MemoryBeforeBytes))/(1<<20), 10)
}

// seconds returns how long a run has taken; nil before its start.
func seconds(e contract.Execution) *float64 {
	switch {
	case e.StartedAt == nil:
		return nil
	case e.FinishedAt != nil:
		return round(e.FinishedAt.Sub(*e.StartedAt).Seconds(), 1000)
	case e.Status.Finished():
		return nil
	}
	// The VM's clock may differ, and a negative time would be nonsense.
	return round(max(0, time.Since(*e.StartedAt).Seconds()), 1000)
}

func round(v float64, parts float64) *float64 {
	v = math.Round(v*parts) / parts
	return &v
}

func (r *Run) text(b *words) {
	fmt.Fprintf(b, "Status: %s", r.Status)
	if r.ExecutionTimeSec != nil {
		fmt.Fprintf(b, ", %.3g s", *r.ExecutionTimeSec)
	}
	switch {
	case r.inTab:
		r.nextInTab(b)
	case r.ExecutionID == "": // a cell that has not begun
		b.WriteString("\n")
		r.next(b)
	default:
		fmt.Fprintf(b, ", execution_id %s\n", r.ExecutionID)
		r.next(b)
	}
	for _, o := range r.Outputs {
		if o.Path != "" {
			fmt.Fprintf(b, "Output %s is saved in %s\n", inlineList(o.MIMETypes), render.File{Path: o.Path, Pixels: o.Pixels})
		}
	}
	for _, f := range r.SavedFiles {
		switch f.Kind {
		case "result", "traceback":
			fmt.Fprintf(b, "The complete %s is in %s\n", f.Kind, f.Path)
		case contract.Stdout, contract.Stderr:
			if r.page {
				fmt.Fprintf(b, "The text of %s is saved in %s\n", f.Kind, f.Path)
			}
		}
	}
	b.notes(r.Notes)
	if r.CheckpointPath != "" {
		fmt.Fprintf(b, "Checkpoint: %s\n", r.CheckpointPath)
	}
	r.quoted(b)
}

// quoted adds what the code printed and showed.
func (r *Run) quoted(b *words) {
	b.say("stdout", r.Stdout)
	b.say("stderr", r.Stderr)
	if r.Result != nil {
		b.say("result", *r.Result)
	}
	for _, o := range r.Outputs {
		isResult := o.Text == "" && o.Path == "" && len(o.MIMETypes) == 1
		if !isResult {
			b.quote("output "+inlineList(o.MIMETypes), o.Text)
		}
	}
	b.quote("traceback of an error that was displayed, after which the run continued", r.displayed)
}

// next says what to do about a run that has not ended or whose output is not complete here.
func (r *Run) next(b *words) {
	switch contract.Status(r.Status) {
	case contract.StatusQueued:
		behind := ahead(r.QueuePosition)
		switch {
		case r.Behind != "" && r.QueuePosition > 1:
			behind += ", now run " + r.Behind
		case r.Behind != "":
			behind = "run " + r.Behind
		}
		fmt.Fprintf(b, "Waiting for %s on runtime %q; do not submit the code again. ", behind, r.runtime)
	case contract.StatusRunning:
		fmt.Fprintf(b, "Still running on runtime %q; do not run the code again. ", r.runtime)
	case contract.StatusWaitingForInput:
		prompt := ""
		if r.InputPrompt != nil {
			prompt = *r.InputPrompt
		}
		fmt.Fprintf(b, "Waiting for input on runtime %q: %s. ", r.runtime, plain.Quote(plain.Clip(prompt, maxInline)))
	default:
		switch {
		case r.Truncated && r.page:
			b.WriteString("More output follows. ")
		case r.Truncated:
			fmt.Fprintf(b, "The output is shortened here%s. To page through it: ", r.savedStreams())
			b.WriteString(r.NextCommand + "\n")
			return
		}
	}
	if r.NextCommand != "" {
		fmt.Fprintf(b, "Next step: %s\n", r.NextCommand)
	}
	if r.Truncated && !r.page {
		fmt.Fprintf(b, "The output so far is shortened here%s; get_execution with offset=%d pages through it.\n", r.savedStreams(), r.NextOffset)
	}
}

// nextInTab is next for a run in Colab's tab.
func (r *Run) nextInTab(b *words) {
	b.WriteString("\n")
	switch {
	case contract.Status(r.Status) == contract.StatusRunning:
		fmt.Fprintf(b, "Still running in Colab's tab. The same call waits on and does not start the cell again; get_cells shows the outputs so far. Next step: %s\n", r.NextCommand)
	case r.Truncated:
		fmt.Fprintf(b, "The output is shortened here%s. More of it: %s\n", r.savedStreams(), r.NextCommand)
	}
}

// savedStreams names the files that have the complete output.
func (r *Run) savedStreams() string {
	var paths []string
	for _, f := range r.SavedFiles {
		if f.Kind == contract.Stdout || f.Kind == contract.Stderr {
			paths = append(paths, f.Path)
		}
	}
	if len(paths) == 0 {
		return ""
	}
	return " and saved in " + strings.Join(paths, " and ")
}

// quotedList returns names as prose: "a", "b" and "c", with the word before the last one.
func quotedList(names []string, word string) string {
	all := make([]string, len(names))
	for i, name := range names {
		all[i] = strconv.Quote(name)
	}
	if n := len(all) - 1; n > 0 {
		return strings.Join(all[:n], ", ") + " " + word + " " + all[n]
	}
	return strings.Join(all, "")
}
