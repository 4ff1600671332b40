package main

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"strings"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
)

// find looks for a run whose submission has no answer, as an agent does. It returns "" if the
// VM does not list it.
func (s *scene) find(ctx context.Context, id string) (string, error) {
	a, err := s.ask(ctx, "list_executions", map[string]any{"limit": 100}, nil)
	if err != nil {
		return "", err
	}
	list, _ := a.Fields["executions"].([]any)
	for _, entry := range list {
		fields, _ := entry.(map[string]any)
		if fields["code_preview"] == "# "+id {
			found, _ := fields["execution_id"].(string)
			return found, nil
		}
	}
	return "", nil
}

// begin submits a run with run_code_long. It returns the answer, or an empty one with the id of
// the run that was found; false if the run never began or is gone.
func (s *scene) begin(ctx context.Context, x *submission) (a harness.Answer, begun bool, err error) {
	a, err = s.call(ctx, "run_code_long", map[string]any{"code": x.code})
	if err == nil {
		x.take(a)
	} else if !isNoAnswer(err) {
		return a, false, err
	}
	if x.executionID == "" {
		a = harness.Answer{}
		x.executionID, err = s.find(ctx, x.id)
	} else {
		err = nil
	}
	return a, x.executionID != "", err
}

// get reads a run from offset. found is false if the VM that had it is gone.
func (s *scene) get(ctx context.Context, x *submission, offset int64, wait float64) (a harness.Answer, found bool, err error) {
	a, err = s.ask(ctx, "get_execution", map[string]any{"execution_id": x.executionID, "offset": offset, "wait_seconds": wait}, s.runEnds(x))
	if err != nil || a.Error() == string(contract.CodeNotFound) {
		return a, false, err
	}
	x.take(a)
	return a, true, nil
}

// runEnds are ends, and the statuses in which the run may end without a fault.
func (s *scene) runEnds(x *submission) accepted {
	all := maps.Clone(ends)
	maps.Copy(all, x.expected)
	return all
}

// follow reads the rest of a run until its end. begun is the answer that had the beginning. An
// answer that waited and omits text is head and tail; then pages follow, which omit nothing.
func (s *scene) follow(ctx context.Context, x *submission, begun harness.Answer) error {
	text, offset, wait := begun.String("stdout"), begun.Int("next_offset"), 3.0
	if begun.Fields["truncated"] == true {
		text, offset, wait = "", 0, 0
	}
	for {
		a, found, err := s.get(ctx, x, offset, wait)
		if err != nil || !found {
			return err
		}
		omits, next := a.Fields["truncated"] == true, a.Int("next_offset")
		if omits && wait > 0 {
			wait = 0
			continue
		}
		text += a.String("stdout")
		if x.over() && !omits {
			return x.checkText("the pages of run "+x.id, x.reported, text)
		}
		if next < offset || omits && next == offset {
			return fmt.Errorf("run %s: the page at offset %d ends at offset %d", x.id, offset, next)
		}
		offset = next
		if !omits {
			wait = 3
		}
	}
}

// checkText compares what was read of a run that ended with the status with what it prints.
func (x *submission) checkText(what string, status contract.Status, text string) error {
	if x.anything || x.printed(text, status == contract.StatusSucceeded) {
		return nil
	}
	return fmt.Errorf("%s (%s) have %q, it prints %q", what, status, clip(text), clip(x.output))
}

// gapLine is how an answer shows that output is missing.
var gapLine = regexp.MustCompile(`\n?\[… \d+ bytes are not in the log on the VM …\]\n`)

// printed reports whether the text is the beginning of the run's output, all of it if it is
// complete. Between gaps, of which only a lossy run may have some, it has parts of the output in
// their order.
func (x *submission) printed(text string, complete bool) bool {
	parts, rest := []string{text}, x.output
	if x.lossy {
		parts = gapLine.Split(text, -1)
	}
	for n, part := range parts {
		at := strings.Index(rest, part)
		if at < 0 || at > 0 && n == 0 {
			return false
		}
		rest = rest[at+len(part):]
	}
	last := parts[len(parts)-1]
	return !complete || rest == "" || len(parts) > 1 && strings.HasSuffix(x.output, last)
}

// clip shortens a text for a message.
func clip(text string) string {
	if len(text) <= 600 {
		return text
	}
	return fmt.Sprintf("%s…(%d bytes)…%s", text[:300], len(text), text[len(text)-300:])
}
