package tools

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"colabrelay/relay/checkpoint"
	"colabrelay/relay/chunked"
	"colabrelay/relay/nbrun"
	"colabrelay/relay/plain"
	"colabrelay/relay/render"
)

// Bounds of what the text of get_checkpoint shows.
const (
	maxCellProblems = 20
	maxLineShown    = 300 // characters of a line from the VM
	maxLinesShown   = 5   // of what was printed last
)

// checkpointText describes a checkpoint in sentences. The first one begins with what it is. The
// answer may have up to limit characters.
func checkpointText(dir, name string, entry checkpoint.Entry, limit int, peek func(*chunked.Record) (*chunked.Record, error)) (*words, error) {
	damaged := func(err error) error {
		return fmt.Errorf("%q in %s: %w", name, checkpoint.Path(dir, name), err)
	}
	b := &words{}
	switch entry.Kind() {
	case chunked.Kind:
		r, err := chunked.Read(entry)
		if err != nil {
			return nil, damaged(err)
		}
		live, err := peek(r)
		chunkedText(b, name, live, limit/2)
		liveText(b, r, live, err)
	case nbrun.Kind:
		r, err := nbrun.Read(entry)
		if err != nil {
			return nil, damaged(err)
		}
		notebookText(b, r)
	default:
		var kept savedAnswer
		if json.Unmarshal(entry.Data, &kept) != nil {
			return nil, damaged(chunked.ErrDamaged)
		}
		if kept.Run == nil || kept.Status == "" {
			b.WriteString("of a kind that this release cannot describe.\n")
			break
		}
		fmt.Fprintf(b, "a kept answer of run_code_long on runtime %q:\n", plain.Line(kept.Outcome.Runtime))
		kept.runtime = kept.Outcome.Runtime
		kept.Outcome.text(b)
		kept.Run.text(b)
		kept.Outcome.trace(b)
	}
	return b, nil
}

// chunkedText describes the progress of a chunked run. Values of result take up to room
// characters.
func chunkedText(b *words, name string, r *chunked.Record, room int) {
	done := min(r.Done, r.N)
	fmt.Fprintf(b, "a chunked run on runtime %q: %s.\n", plain.Line(r.Runtime), plain.Clip(string(r.Status), 40))
	fmt.Fprintf(b, "%d of %d iterations done (%s%%)", done, r.N, number(*round(100*float64(done)/float64(r.N), 10)))
	if done > 0 {
		fmt.Fprintf(b, ", last confirmed at %s", r.UpdatedAt.UTC().Format(time.RFC3339))
	}
	if left := float64(r.Remaining()) * r.MeanSeconds; r.Timed > 0 && left > 0 {
		fmt.Fprintf(b, "; %d remain, about %s at %s each", r.Remaining(), shortTime(left), tookText(r.MeanSeconds))
	}
	b.WriteString(".\n")
	if f := r.Failure; f != nil {
		at := "It stopped"
		if f.Iteration != nil {
			at = fmt.Sprintf("It stopped at iteration %d", *f.Iteration)
		}
		fmt.Fprintf(b, "%s: %s\n", at, plain.Quote(plain.Clip(f.Message, maxLineShown)))
	}
	lastValues(b, r.Results, done, room)
	if r.ResultsDropped > 0 {
		fmt.Fprintf(b, "Values of result that were not saved, because all together may have 16 MiB: %d\n", r.ResultsDropped)
	}
	b.quote("variables that iterations pass on", plain.Clip(r.Variables(), 2*maxLineShown))
	lastLines(b, r.Output)
	if next := chunkedNext(name, r); next != "" {
		fmt.Fprintf(b, "Next step: %s\n", next)
	}
}

// liveText says how much of what is shown the VM has just said, and what was not read yet.
func liveText(b *words, saved, live *chunked.Record, err error) {
	switch {
	case saved.Job == nil || saved.Status != chunked.StatusRunning:
	case err != nil:
		fmt.Fprintf(b, "If the VM is alive, it continues the run by itself; its present state could not be read (%s).\n", plain.Line(plain.Clip(err.Error(), maxLineShown)))
	case live.Done > saved.Done:
		fmt.Fprintf(b, "The VM has just confirmed %s; their values and output are read by run_chunked_operation.\n", chunked.Iterations(saved.Done, live.Done-1))
	}
}

// chunkedNext is the next step of a chunked run that is not finished.
func chunkedNext(name string, r *chunked.Record) string {
	again := fmt.Sprintf("run_chunked_operation with checkpoint_name=%q", name)
	switch {
	case r.Status == chunked.StatusFinished:
		return ""
	case r.Status == chunked.StatusVariablesLost:
		return fmt.Sprintf(`restore_kernel_state, or %s and on_stop="continue" or on_change="restart".`, again)
	case r.Status == chunked.StatusVariablesChanged:
		return again + ` and on_stop="accept" or "restore".`
	case r.Status == chunked.StatusIncomplete, r.Failure != nil && r.Failure.Iteration != nil && len(r.Failure.Variables) > 0:
		return again + ` and on_stop="again", "skip" or "restore".`
	case r.Failure != nil && r.Failure.Iteration == nil && !r.Failure.Setup:
		return again + ` continues the run, in a new kernel from the newest copy of its variables; with corrected code add on_change="continue".`
	case r.Failure != nil:
		return fmt.Sprintf(`%s tries iteration %d again; with corrected code add on_change="continue".`, again, r.Done)
	}
	return again + " reads on, and continues the run if it does not run any more."
}

// notebookText describes the record of a notebook's runs.
func notebookText(b *words, r *nbrun.Record) {
	fmt.Fprintf(b, "the record of runs of the notebook %s on runtime %q.\n", plain.Line(r.Path), plain.Line(r.Runtime))
	if r.Run.ID == "" {
		b.WriteString("Single cells of it were run; run_notebook was not called for it.\n")
		return
	}
	run := &r.Run
	fmt.Fprintf(b, "The last run of run_notebook, begun at %s: %s.\n", run.StartedAt.UTC().Format(time.RFC3339), plain.Clip(run.Summary(), maxLineShown))
	var problems []string
	for i := range run.Plan {
		if text := run.Plan[i].Problem(); text != "" {
			problems = append(problems, plain.Clip(text, maxLineShown))
		}
	}
	if more := len(problems) - maxCellProblems; more > 0 {
		problems = append(problems[:maxCellProblems], "and "+plain.Count(more, "more cell"))
	}
	b.quote("cells that did not succeed", strings.Join(problems, "\n"))
	switch {
	case !run.Status.Finished():
		fmt.Fprintf(b, "Next step: run_notebook with notebook_path=%q and the same arguments as before continues it.\n", plain.Line(r.Path))
	case !run.Succeeded():
		fmt.Fprintf(b, "Next step: correct the cells with update_cell, then call %s.\n", command("run_notebook", "notebook_path", plain.Line(r.Path), "cells", "dirty"))
	}
}

// lastLines shows the last lines of a printed text.
func lastLines(b *words, printed string) {
	printed = strings.TrimSpace(render.Plain(printed))
	if printed == "" {
		return
	}
	lines := strings.Split(printed, "\n")
	lines = lines[max(0, len(lines)-maxLinesShown):]
	for i := range lines {
		lines[i] = plain.Clip(lines[i], maxLineShown)
	}
	b.quote("printed last", strings.Join(lines, "\n"))
}

// lastValues shows the last values of result, as many as fit into that many characters. Some of
// the completed iterations may have none: they set no result, or it never arrived.
func lastValues(b *words, all []chunked.Value, completed int64, room int) {
	var lines []string
	for _, v := range slices.Backward(all) {
		value := string(v.Value)
		if v.Omitted != "" {
			value = "not saved: " + v.Omitted
		}
		line := fmt.Sprintf("%d: %s\n", v.Iteration, plain.Clip(value, maxLineShown))
		if room -= utf8.RuneCountInString(line); room < 0 {
			break
		}
		lines = append(lines, line)
	}
	heading := fmt.Sprintf("values of result: %d", len(all))
	if int64(len(all)) < completed {
		heading += fmt.Sprintf(", of %d completed iterations", completed)
	}
	if len(lines) < len(all) {
		heading += fmt.Sprintf("; the last %d", len(lines))
	}
	slices.Reverse(lines)
	b.quote(heading, strings.Join(lines, ""))
}

// shortTime is a duration as people write it, to the second.
func shortTime(seconds float64) string {
	const most = 1e9 // seconds
	return (time.Duration(min(seconds, most)) * time.Second).String()
}
