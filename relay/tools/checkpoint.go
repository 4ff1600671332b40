package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"colabrelay/relay/checkpoint"
	"colabrelay/relay/chunked"
	"colabrelay/relay/plain"
	"colabrelay/relay/render"
)

type checkpointArgs struct {
	Name string `json:"checkpoint_name" was:"operation" min:"1" max:"200" doc:"The checkpoint_name of the run."`
	target
}

// Checkpoint is the answer of get_checkpoint.
type Checkpoint struct {
	Exists    bool            `json:"exists"`
	Operation string          `json:"operation"`
	Timestamp *time.Time      `json:"timestamp,omitzero"` // when it was last written; absent if there is none
	Path      string          `json:"path,omitempty"`     // its complete file on the relay's machine
	Data      json.RawMessage `json:"data,omitzero"`      // of a chunked run: status, completed, results (values of result by iteration) and more. Of a long run: its answer
	Truncated bool            `json:"truncated"`          // long texts and lists of data are shortened here; the file is complete
	Names     []string        `json:"names,omitempty"`    // if no checkpoint has that name: the names that exist

	content *words // what it is, in sentences
	limit   int    // characters of the text
}

func (r *Checkpoint) maxText() int { return r.limit }

func getCheckpoint() tool {
	return define(spec{
		name: "get_checkpoint", title: "Read a checkpoint",
		summary:     "returns the progress of a chunked run, or an answer kept by `checkpoint_name`",
		description: "Reads what is saved on this computer under a checkpoint_name: progress and results of run_chunked_operation, or the answer of run_code_long. If the VM answers, the progress is current.",
		readOnly:    true, idempotent: true, local: true,
	}, func(ctx context.Context, c *call, args checkpointArgs) (*Checkpoint, *Problem) {
		dir, name := c.cfg.CheckpointDir, args.Name
		got := &Checkpoint{Operation: name, limit: c.cfg.TextLimit}
		entry, err := checkpoint.Load(dir, name, nil)
		switch {
		case errors.Is(err, checkpoint.ErrNotFound):
			names, err := checkpoint.Names(dir)
			if err != nil {
				return nil, problemOf(err)
			}
			got.Names, got.Truncated = fitList(names)
			return got, nil
		case errors.Is(err, checkpoint.ErrCorrupt), errors.Is(err, checkpoint.ErrTooLarge), err == nil && !isObject(entry.Data):
			return nil, problemOf(fmt.Errorf("%q in %s: %w", name, checkpoint.Path(dir, name), chunked.ErrDamaged))
		case err != nil:
			return nil, problemOf(err)
		}
		got.Exists, got.Timestamp, got.Path = true, &entry.Timestamp, checkpoint.Path(dir, name)
		if got.content, err = checkpointText(dir, name, entry, c.cfg.TextLimit, func(r *chunked.Record) (*chunked.Record, error) { return c.peek(ctx, r) }); err != nil {
			return nil, problemOf(err)
		}
		got.Data, got.Truncated, err = fitData(entry.Data)
		if err != nil {
			return nil, internalProblem("reading the checkpoint: " + err.Error())
		}
		return got, nil
	})
}

// peekTime is how long get_checkpoint waits for the VM.
const peekTime = 3 * time.Second

// errOtherRuntime: the run is on another VM than the one of this call.
var errOtherRuntime = errors.New("the run is on another runtime")

// peek asks the VM how far a chunked run is. It changes nothing, and the run's lock is not needed.
func (c *call) peek(ctx context.Context, r *chunked.Record) (*chunked.Record, error) {
	at := c.target
	if c.asked == "" && at.Name != r.Runtime {
		at, _ = c.cfg.Resolve(r.Runtime)
	}
	if at.Client == nil || at.Name != r.Runtime {
		return r, errOtherRuntime
	}
	ctx, cancel := context.WithTimeout(ctx, peekTime)
	defer cancel()
	return chunked.Peek(ctx, at.Client, r, time.Now().Add(peekTime/2))
}

// isObject reports whether raw, which is valid JSON, is an object, as everything is that the
// relay itself saves.
func isObject(raw json.RawMessage) bool { return bytes.HasPrefix(raw, []byte("{")) }

// maxDataBytes bounds data.
const maxDataBytes = 24_000

// fitData shortens JSON, which has no white space, until it fits into an answer: texts lose their
// middle, lists their beginning.
func fitData(raw json.RawMessage) (json.RawMessage, bool, error) {
	raw, err := plainData(raw)
	if err != nil {
		return nil, false, err
	}
	if len(raw) <= maxDataBytes {
		return raw, false, nil
	}
	for _, limit := range []struct{ runes, items int }{{8000, 1000}, {2000, 200}, {1000, 50}, {300, 10}, {200, 2}, {200, 0}} {
		decoder := json.NewDecoder(bytes.NewReader(raw))
		decoder.UseNumber()
		var v any
		if err := decoder.Decode(&v); err != nil {
			return nil, false, err
		}
		short, err := json.Marshal(shorten(v, limit.runes, limit.items))
		if err != nil {
			return nil, false, err
		}
		if len(short) <= maxDataBytes {
			return short, true, nil
		}
	}
	return nil, true, nil
}

// plainData returns JSON without control characters and invisible ones in its texts. A kept
// answer has what the VM sent, and the rules for answers do not reach into JSON.
func plainData(raw json.RawMessage) (json.RawMessage, error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var v any
	if err := decoder.Decode(&v); err != nil {
		return nil, err
	}
	changed := false
	plain.Deep(&v, map[string]plain.Rule{"": func(s string) string {
		clean := plain.Text(s)
		changed = changed || clean != s
		return clean
	}})
	if !changed {
		return raw, nil // with its keys in order
	}
	return json.Marshal(v)
}

func shorten(v any, runes, items int) any {
	switch v := v.(type) {
	case string:
		s, _ := render.Clip(v, runes)
		return s
	case []any:
		v = v[max(0, len(v)-items):]
		for i := range v {
			v[i] = shorten(v[i], runes, items)
		}
		return v
	case map[string]any:
		for key := range v {
			v[key] = shorten(v[key], runes, items)
		}
	}
	return v
}

func (r *Checkpoint) text(b *words) {
	if !r.Exists {
		fmt.Fprintf(b, "There is no checkpoint %q. ", r.Operation)
		if len(r.Names) == 0 {
			b.WriteString("There are none at all.\n")
			return
		}
		fmt.Fprintf(b, "Checkpoints that exist: %s.\n", quotedList(r.Names, "and"))
		return
	}
	fmt.Fprintf(b, "Checkpoint %q, written at %s, is %s", r.Operation, r.Timestamp.UTC().Format(time.RFC3339), ensureLine(r.content.String()))
	fmt.Fprintf(b, "The complete file: %s\n", r.Path)
	b.blocks = append(b.blocks, r.content.blocks...)
}
