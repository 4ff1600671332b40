package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"colabrelay/relay/client"
	"colabrelay/relay/plain"
	"colabrelay/relay/render"
)

// Sizes of a result. Claude Desktop cuts at 1 MB, pictures included.
const (
	maxResultBytes = 880_000
	maxTextRunes   = 39_500
	maxListBytes   = 36_000 // of a list in structuredContent
)

// spec is the description of a tool for hosts, without its schemas.
type spec struct {
	name, title, description                     string
	readOnly, destructive, idempotent, openWorld bool
	// A local tool sends nothing to the VM and works without a runtime.
	local bool
}

// tool is a definition and its handler. The handler returns a payload, a Problem, or both:
// a run that failed has output and an error.
type tool struct {
	def    mcp.Tool
	handle func(ctx context.Context, c *call, arguments json.RawMessage) (payload, *Problem)
}

// payload is the tool's own part of an answer: a pointer to a struct of JSON fields, or nil
// for none.
type payload interface {
	// text writes the same for a reader, shorter.
	text(b *strings.Builder)
}

// Outcome is the part that all answers have in common.
type Outcome struct {
	Success bool     `json:"success" doc:"False if something went wrong; error says what."`
	Runtime string   `json:"runtime" doc:"Name of the runtime that the call used; empty if none could be chosen."`
	Warning string   `json:"warning,omitempty" doc:"Something to know before you continue, such as a new kernel without the old variables."`
	Error   *Problem `json:"error,omitempty"`
}

// target is embedded in every tool's arguments.
type target struct {
	Runtime string `json:"runtime" default:"" doc:"Which paired runtime to use; omit it for the default one."`
}

func (t target) runtime() string { return t.Runtime }

// define makes a tool with typed arguments A and payload P. Both schemas come from the types,
// so they always match what is parsed and sent.
func define[A interface{ runtime() string }, P any, PP interface {
	*P
	payload
}](s spec, handle func(ctx context.Context, c *call, args A) (PP, *Problem)) tool {
	return tool{
		def: mcp.Tool{
			Name: s.name, Title: s.title, Description: s.description,
			RawInputSchema:  inputSchema[A](),
			RawOutputSchema: outputSchema[P](),
			// To a host, a missing hint means destructive and open-world.
			Annotations: mcp.ToolAnnotation{
				Title: s.title, ReadOnlyHint: &s.readOnly, DestructiveHint: &s.destructive,
				IdempotentHint: &s.idempotent, OpenWorldHint: &s.openWorld,
			},
		},
		handle: func(ctx context.Context, c *call, raw json.RawMessage) (payload, *Problem) {
			args, problem := parseArguments[A](raw)
			if problem == nil {
				problem = c.resolve(args.runtime(), s.local)
			}
			if problem != nil {
				return nil, problem
			}
			got, problem := handle(ctx, c, args)
			if got == nil {
				return nil, problem
			}
			return got, problem
		},
	}
}

// call is one tool call in progress. Only one goroutine may use it.
type call struct {
	*Relay
	target   Runtime
	hold     time.Duration // how long it may wait for a run
	started  time.Time
	progress *progressNotifier // nil if the host wants none
	warnings []string
	pictures []render.Picture
}

// resolve finds the runtime of the call; a local tool works without one.
func (c *call) resolve(name string, local bool) *Problem {
	if len(c.cfg.Problems) > 0 {
		return badSettings(c.cfg.Problems)
	}
	target, err := c.cfg.Resolve(name)
	if err != nil && !local {
		return resolveProblem(err)
	}
	c.target = target
	return nil
}

func (c *call) warn(format string, args ...any) {
	c.warnings = append(c.warnings, fmt.Sprintf(format, args...))
}

// handler wraps a tool for the SDK. It handles time limits, cancellation, progress and
// panics, and turns every outcome into a result of the tool's own schema.
func (r *Relay) handler(t tool) server.ToolHandlerFunc {
	return func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		ctx, done := r.cancels.begin(ctx, req.Header.Get(callIDHeader))
		defer done()
		hold, limit, release := r.takeHold()
		defer release()
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()

		c := &call{Relay: r, hold: hold, started: time.Now(), progress: r.startProgress(req)}
		got, problem := r.guarded(ctx, t, c, req.Params.RawArguments)
		c.progress.stop()
		if problem != nil {
			r.cfg.Log.Info("tool call", "tool", t.def.Name, "runtime", c.target.Name, "code", problem.Code, "dur", time.Since(c.started))
		}
		return c.result(got, problem), nil
	}
}

// takeHold returns how long a call may wait for a run, which is less if many wait already,
// and how long it may take in all.
func (r *Relay) takeHold() (hold, limit time.Duration, release func()) {
	select {
	case r.holding <- struct{}{}:
		return r.cfg.Hold, r.cfg.Hold, func() { <-r.holding }
	default:
		return min(r.cfg.Hold, shortHold), min(r.cfg.Hold, shortLimit), func() {}
	}
}

// guarded turns a panic into an answer, because the SDK would send a JSON-RPC error, which
// most hosts show as a broken server.
func (r *Relay) guarded(ctx context.Context, t tool, c *call, raw json.RawMessage) (got payload, problem *Problem) {
	defer func() {
		if p := recover(); p != nil {
			r.cfg.Log.Error("panic in a tool", "tool", t.def.Name, "err", fmt.Sprint(p), "stack", string(debug.Stack()))
			got, problem = nil, internalProblem(fmt.Sprintf("the relay failed in %s", t.def.Name))
		}
	}()
	if ctx.Err() != nil {
		return nil, cancelledProblem
	}
	return t.handle(client.WithReachLimit(ctx), c, raw)
}

// shown applies to every string of an answer: it makes names of files, and other text from
// outside without a special rule, plain.
var shown = map[string]plain.Rule{"": plain.Text}

// result assembles an answer: structured content, text and pictures.
func (c *call) result(got payload, problem *Problem) *mcp.CallToolResult {
	out := Outcome{Success: problem == nil, Runtime: c.target.Name, Warning: strings.Join(c.warnings, " "), Error: problem.copy()}
	plain.Deep(&out, shown)
	plain.Deep(&got, shown)
	structured, err := merge(out, got)
	if err != nil {
		out = Outcome{Runtime: c.target.Name, Error: internalProblem("encoding the answer: " + err.Error())}
		got, c.pictures = nil, nil
		structured, _ = merge(out, nil)
	}
	var b strings.Builder
	out.text(&b)
	if got != nil {
		got.text(&b)
	}
	text, _ := render.Clip(b.String(), maxTextRunes)
	text = plain.Text(text) // a payload's text may contain more than its fields
	res := &mcp.CallToolResult{
		StructuredContent: structured,
		IsError:           out.Error != nil,
		Content:           []mcp.Content{mcp.NewTextContent(text)},
	}
	c.addPictures(res, len(structured)+jsonLen(text))
	return res
}

// addPictures appends the pictures that still fit. It prefers the newest ones, and appends
// them in order.
func (c *call) addPictures(res *mcp.CallToolResult, used int) {
	first := len(c.pictures)
	for first > 0 {
		size := len(c.pictures[first-1].Data)*4/3 + 200
		if used+size > maxResultBytes {
			break
		}
		used += size
		first--
	}
	if first > 0 {
		res.Content = append(res.Content, mcp.NewTextContent(plain.Count(first, "picture")+" did not fit into this result; the files are named above."))
	}
	for _, p := range c.pictures[first:] {
		res.Content = append(res.Content, mcp.NewImageContent(p.Base64(), p.MIMEType))
	}
}

// merge encodes the outcome and the payload as one JSON object.
func merge(out Outcome, got payload) (json.RawMessage, error) {
	a, err := json.Marshal(out)
	if err != nil || got == nil {
		return a, err
	}
	b, err := json.Marshal(got)
	if err != nil || len(b) <= len("{}") {
		return a, err
	}
	a[len(a)-1] = ','
	return append(a, b[1:]...), nil
}

func jsonLen(s string) int {
	b, _ := json.Marshal(s)
	return len(b)
}

func (o Outcome) text(b *strings.Builder) {
	if o.Warning != "" {
		fmt.Fprintf(b, "Warning: %s\n", o.Warning)
	}
	if o.Error == nil {
		return
	}
	fmt.Fprintf(b, "Error (%s): %s\n", o.Error.Code, o.Error.Message)
	if o.Error.Traceback != "" {
		fmt.Fprintf(b, "%s\n", strings.TrimRight(o.Error.Traceback, "\n"))
	}
	if o.Error.Hint != "" {
		fmt.Fprintf(b, "Next step: %s\n", o.Error.Hint)
	}
}

// firsts is fitList for callers that need not know whether it dropped any.
func firsts[T any](items []T) []T {
	kept, _ := fitList(items)
	return kept
}

// fitList returns the first items whose JSON fits into maxListBytes, and whether it dropped
// any.
func fitList[T any](items []T) (kept []T, cut bool) {
	used := 0
	for i := range items {
		b, err := json.Marshal(items[i])
		if used += len(b) + 1; err != nil || used > maxListBytes {
			return items[:i:i], true
		}
	}
	if items == nil {
		items = []T{}
	}
	return items, false
}
