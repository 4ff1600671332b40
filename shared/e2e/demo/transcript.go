package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"colabrelay/shared/e2e/harness"
)

// shownLines is the most lines of an answer that are printed.
const shownLines = 24

// transcript prints the session and records how long each call took.
type transcript struct {
	out   io.Writer
	part  int
	calls []timed
}

type timed struct {
	tool string
	took time.Duration
}

func newTranscript(out io.Writer) *transcript { return &transcript{out: out} }

// title prints the heading of a part and one sentence about it.
func (t *transcript) title(name, why string) {
	t.part++
	fmt.Fprintf(t.out, "\n%2d  %s\n    %s\n\n", t.part, strings.ToUpper(name), why)
}

// line prints one indented line.
func (t *transcript) line(format string, args ...any) {
	fmt.Fprintf(t.out, "    "+format+"\n", args...)
}

// call calls a tool and prints the request and the answer.
func (t *transcript) call(ctx context.Context, host *harness.Host, tool string, args map[string]any) (harness.Answer, error) {
	t.asked(tool, args)
	a, err := host.Call(ctx, tool, args)
	if err != nil {
		return a, err
	}
	t.answered(tool, a)
	return a, nil
}

func (t *transcript) asked(tool string, args map[string]any) {
	fmt.Fprintf(t.out, "    → %s %s\n", tool, arguments(args))
}

// codeArguments are printed as text, all other arguments as JSON.
var codeArguments = []string{"code", "setup_code", "loop_code"}

func arguments(args map[string]any) string {
	rest, code := map[string]any{}, ""
	for name, value := range args {
		if !slices.Contains(codeArguments, name) {
			rest[name] = value
		}
	}
	for _, name := range codeArguments {
		text, ok := args[name].(string)
		if !ok {
			continue
		}
		if name != "code" {
			code += "\n    " + name
		}
		code += "\n" + indent(text, "    │ ")
	}
	if len(rest) == 0 {
		return code
	}
	data, _ := json.Marshal(rest)
	return string(data) + code
}

func (t *transcript) answered(tool string, a harness.Answer) {
	t.calls = append(t.calls, timed{tool, a.Took})
	mark := "←"
	if a.IsError {
		mark = "← isError"
	}
	fmt.Fprintf(t.out, "    %s after %s\n%s\n", mark, took(a.Took), indent(shown(a.Text), "      "))
	for _, image := range a.Images {
		fmt.Fprintf(t.out, "      [image content: %s, %d KB of base64]\n", image.MIMEType, len(image.Data)>>10)
	}
	fmt.Fprintln(t.out)
}

// shown returns the head and the tail of a text that is longer than shownLines.
func shown(text string) string {
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(all) <= shownLines {
		return strings.Join(all, "\n")
	}
	cut := fmt.Sprintf("… %d more lines …", len(all)-shownLines)
	half := shownLines / 2
	return strings.Join(slices.Concat(all[:half], []string{cut}, all[len(all)-half:]), "\n")
}

func indent(text, prefix string) string {
	return prefix + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n"+prefix)
}

func took(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
