package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
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
	maxPageRunes   = 60_000 // a page of the largest events at the largest limit has less
	maxListBytes   = 36_000 // of a list in structuredContent
)

// spec is the description of a tool for hosts, without its schemas.
type spec struct {
	name, title, description                     string
	summary                                      string // for README: what the tool does, in one line
	readOnly, destructive, idempotent, openWorld bool
	// A local tool sends nothing to the VM and works without a runtime.
	local bool
	// A bulk tool may move much data.
	bulk bool
	// An upfront tool should be loaded from the start by hosts that load tools on demand.
	upfront bool
}

// maxResultChars asks Claude Code to keep a result of this many characters in the
// conversation. Its own bound would move a page of output into a file.
const maxResultChars = 200_000

// meta returns the hints for Claude Code; nil if the tool needs none.
func (s spec) meta() *mcp.Meta {
	if !s.upfront {
		return nil
	}
	return mcp.NewMetaFromMap(map[string]any{"anthropic/alwaysLoad": true, "anthropic/maxResultSizeChars": maxResultChars})
}

// tool is a definition and its handler. The handler returns a payload, a Problem, or both:
// a run that failed has output and an error.
type tool struct {
	def     mcp.Tool
	summary string
	bulk    bool
	handle  func(ctx context.Context, c *call, arguments json.RawMessage) (payload, *Problem)
}

// payload is the tool's own part of an answer: a pointer to a struct of JSON fields, or nil
// for none.
type payload interface {
	// text writes the same for a reader, shorter.
	text(b *strings.Builder)
}

// Outcome is the part that all answers have in common.
type Outcome struct {
	Success bool     `json:"success"`           // false if something went wrong; error says what
	Runtime string   `json:"runtime"`           // name of the runtime that the call used; empty if none could be chosen
	Warning string   `json:"warning,omitempty"` // something to know before you continue, such as a new kernel without the old variables
	Error   *Problem `json:"error,omitempty"`
}

// target is embedded in every tool's arguments.
type target struct {
	Runtime string `json:"runtime" default:"" doc:"Omit for the default."`
}

func (t target) runtime() string { return t.Runtime }

// targeted is what the arguments of every tool have.
type targeted interface{ runtime() string }

// define makes a tool with typed arguments A and payload P. Both schemas come from the types,
// so they always match what is parsed and sent. Only what needs the types is here, because the
// program contains it once for each tool.
func define[A targeted, P any, PP interface {
	*P
	payload
}](s spec, handle func(ctx context.Context, c *call, args A) (PP, *Problem)) tool {
	return s.tool(reflect.TypeFor[A](), reflect.TypeFor[P](), func(ctx context.Context, c *call, args targeted) (payload, *Problem) {
		got, problem := handle(ctx, c, args.(A))
		if got == nil {
			return nil, problem
		}
		return got, problem
	})
}

// tool makes a tool whose handler gets a value of the type args.
func (s *spec) tool(args, answer reflect.Type, handle func(ctx context.Context, c *call, args targeted) (payload, *Problem)) tool {
	arguments := argumentsOf(args)
	return tool{
		bulk: s.bulk, summary: s.summary,
		def: mcp.Tool{
			Meta: s.meta(), Name: s.name, Description: s.description,
			RawInputSchema:  inputSchema(arguments),
			RawOutputSchema: outputSchema(answer),
			// To a host, a missing hint means destructive and open-world. The title is only
			// here, where old and new hosts look for it.
			Annotations: mcp.ToolAnnotation{
				Title: s.title, ReadOnlyHint: &s.readOnly, DestructiveHint: &s.destructive,
				IdempotentHint: &s.idempotent, OpenWorldHint: &s.openWorld,
			},
		},
		handle: func(ctx context.Context, c *call, raw json.RawMessage) (payload, *Problem) {
			value := reflect.New(args).Elem()
			if problem := parseArguments(arguments, raw, value); problem != nil {
				return nil, problem
			}
			given := value.Interface().(targeted)
			local := s.local
			if n, ok := given.(interface{ emptyPath() bool }); ok {
				local = local || n.emptyPath() // a tab needs no runtime, and nothing else has no path
			}
			if problem := c.resolve(given.runtime(), local); problem != nil {
				return nil, problem
			}
			return handle(ctx, c, given)
		},
	}
}

// call is one tool call in progress. Only one goroutine may use it.
type call struct {
	*Relay
	target  Runtime
	asked   string        // the runtime argument; empty for the default one
	hold    time.Duration // how long it may wait for a run
	started time.Time
	asker
	formsShown int
	warnings   []string
	pictures   []render.Picture
	sending    func() // see answer.sending
}

// resolve finds the runtime of the call; a local tool works without one.
func (c *call) resolve(name string, local bool) *Problem {
	c.asked = name
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

// handler wraps a tool for the SDK, which gets calls only that stdio finds not valid.
func (r *Relay) handler(t tool) server.ToolHandlerFunc {
	return func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		a := r.perform(ctx, t, asker{}, req.Params.RawArguments)
		a.beforeSending()
		return &mcp.CallToolResult{Content: a.content, StructuredContent: a.structured, IsError: a.isError}, nil
	}
}

// asker is what the host of a call accepts besides the answer.
type asker struct {
	progress *progressNotifier // nil if it wants none
	forms    *forms            // nil if it shows none
}

// perform makes a call. It handles time limits, progress and panics, and turns every outcome
// into an answer of the tool's own schema.
func (r *Relay) perform(ctx context.Context, t tool, by asker, arguments json.RawMessage) (a answer) {
	hold, limit, release := r.takeHold()
	defer release()
	ctx, done := context.WithTimeout(ctx, limit)
	defer done()
	if t.bulk {
		defer r.cfg.UseAllProcessors()()
	}
	c := &call{Relay: r, hold: hold, started: time.Now(), asker: by}
	defer c.progress.stop()
	defer func() {
		if p := recover(); p != nil {
			r.cfg.Log.Error("panic in a tool", "tool", t.def.Name, "err", fmt.Sprint(p), "stack", string(debug.Stack()))
			a = c.answer(nil, internalProblem(fmt.Sprintf("the relay failed in %s", t.def.Name)))
		}
	}()
	got, problem := payload(nil), cancelledProblem
	if ctx.Err() == nil {
		got, problem = t.handle(client.WithReachLimit(ctx), c, arguments)
	}
	if problem != nil {
		r.cfg.Log.Info("tool call", "tool", t.def.Name, "runtime", c.target.Name, "code", problem.Code, "dur", time.Since(c.started))
	}
	a = c.answer(got, problem)
	a.sending = c.sending
	return a
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

// shown applies to every string of an answer: it makes names of files, and other text from
// outside without a special rule, plain.
var shown = map[string]plain.Rule{"": plain.Text}

// answer is the answer to a call.
type answer struct {
	content    []mcp.Content
	structured json.RawMessage
	isError    bool
	sending    func() // to be called when it is sent; may be nil
}

// beforeSending must be called right before the answer is sent.
func (a answer) beforeSending() {
	if a.sending != nil {
		a.sending()
	}
}

// answer assembles an answer: structured content, text and pictures.
func (c *call) answer(got payload, problem *Problem) answer {
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
	limit := maxTextRunes
	if short, ok := got.(interface{ maxText() int }); ok {
		limit = short.maxText()
	}
	text, _ := render.Clip(b.String(), limit)
	text = plain.Text(text) // a payload's text may contain more than its fields
	a := answer{content: []mcp.Content{mcp.NewTextContent(text)}, structured: structured, isError: out.Error != nil}
	if len(c.pictures) > 0 {
		c.addPictures(&a, len(structured)+jsonLen(text))
	}
	return a
}

// addPictures appends the pictures that still fit. It prefers the newest ones, and appends
// them in order.
func (c *call) addPictures(a *answer, used int) {
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
		a.content = append(a.content, mcp.NewTextContent(plain.Count(first, "picture")+" did not fit into this result; the files are named above."))
	}
	for _, p := range c.pictures[first:] {
		a.content = append(a.content, mcp.NewImageContent(p.Base64(), p.MIMEType))
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

// jsonSize returns the length of v as JSON, in bytes.
func jsonSize(v any) int { return len(encode(v)) }

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
