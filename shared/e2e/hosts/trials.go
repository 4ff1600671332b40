package main

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"image"
	_ "image/jpeg"
	_ "image/png"
	"regexp"
	"strings"
)

// trial is one call and what the model must get of its answer.
type trial struct {
	name     string
	step     step
	begins   string   // the relay's text
	says     []string // parts of it
	pictures int
	times    int // how often the host writes the relay's text, 0 for once
	lost     int // pictures that the relay sends and the host drops
	atMost   int // characters of all texts, 0 for no bound of its own
	// refusedBy is what the model must get if the host itself refuses the call, "" if it may not.
	refusedBy string
}

const plot = `import matplotlib
matplotlib.use("module://matplotlib_inline.backend_inline")
import matplotlib.pyplot as plt
plt.plot([1, 4, 9])
plt.show()
`

// printLimit bounds the text of the run that prints 100,000 characters: the relay shows 6,000
// characters of the output and says where the rest is.
const printLimit = 8_000

func quick(code string) step { return step{Tool: "run_code_quick", Args: map[string]any{"code": code}} }

var trials = []trial{
	{name: "the text of a success", step: quick("print('hello', 40 + 1)\n6 * 7"), says: []string{"hello 41", "42"}},
	{name: "a plot", step: quick(plot), pictures: 1},
	{name: "Python's error", step: quick("1/0"), begins: "Error (failed)", says: []string{"ZeroDivisionError: division by zero"}},
	{name: "a failed run with a plot", step: quick(plot + "raise ValueError('after the plot')"), begins: "Error (failed)", says: []string{"ValueError: after the plot"}, pictures: 1},
	{
		name: "an error with its hint", step: step{Tool: "get_execution", Args: map[string]any{"execution_id": "no-such-run"}},
		begins: "Error (", says: []string{"Next step:"},
	},
	{
		name: "an unknown argument", step: step{Tool: "run_code_quick", Args: map[string]any{"code": "print(6*7)", "colour": "red"}},
		begins: "Warning: Ignored arguments", says: []string{"colour", "42"},
	},
	{
		name: "an argument out of its bounds", step: step{Tool: "run_code_long", Args: map[string]any{"code": "print(1)", "timeout_seconds": -5.0}},
		begins: "Error (", says: []string{"timeout_seconds", "Next step:"}, refusedBy: "timeout_seconds",
	},
	{
		name: "100,000 printed characters", step: quick("for i in range(5000):\n    print(f'line {i:06d} 01234567')"),
		says: []string{"line 000000 01234567", "line 004999 01234567"}, atMost: printLimit,
	},
}

// check compares what the model got with what the relay sent, which is nil if the host did not
// pass the call on. The host writes the relay's texts in a form.
func (t trial) check(got exchange, sent *sent, as form) error {
	if sent == nil {
		if t.refusedBy == "" || !strings.Contains(strings.Join(got.Texts, "\n"), t.refusedBy) {
			return fmt.Errorf("the host did not pass the call on; the model got %.300q", got.Texts)
		}
		return nil
	}
	if !sent.Answered || len(sent.Texts) == 0 {
		return fmt.Errorf("the relay sent no text %s", sent.Failed)
	}
	text := strings.Join(got.Texts, "\n")
	problems := append(arrival(text, sent, as, max(t.times, 1)), t.wants(text, sent)...)
	if sent.IsError && len(sent.Images) > 0 {
		problems = append(problems, errors.New("the relay's answer has isError and a picture, which hosts drop"))
	}
	if len(got.Images) != t.pictures || len(sent.Images) != t.pictures+t.lost {
		problems = append(problems, fmt.Errorf("the model got %d pictures, the relay sent %d, want %d and %d", len(got.Images), len(sent.Images), t.pictures, t.pictures+t.lost))
	}
	for _, p := range got.Images {
		problems = append(problems, p.isShown())
	}
	return errors.Join(problems...)
}

// form is how a host writes a text of the relay's.
type form func(text string) string

func plain(text string) string { return text }

func inJSON(text string) string {
	quoted := string(marshal(text))
	return quoted[1 : len(quoted)-1]
}

func inXML(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(text)
}

// arrival returns what happened to the relay's texts on their way. The host writes each so many
// times.
func arrival(text string, sent *sent, as form, times int) (problems []error) {
	for _, part := range sent.Texts {
		switch n := strings.Count(text, as(strings.TrimSpace(part))); {
		case n == 0:
			problems = append(problems, fmt.Errorf("the relay's text did not arrive whole: it sent %s, the model got %s", short(part), short(text)))
		case n != times:
			problems = append(problems, fmt.Errorf("the relay's text arrived %d times", n))
		}
	}
	if strings.Contains(text, `"success":`) || strings.Contains(text, `\"success\":`) {
		problems = append(problems, errors.New(`the model got "success":, which is the JSON for programs`))
	}
	if long := base64Text.FindString(text); long != "" {
		problems = append(problems, fmt.Errorf("a text holds %d characters of base64", len(long)))
	}
	return problems
}

// base64Text is what no text of a result may hold. Pictures have thousands of such characters.
var base64Text = regexp.MustCompile(`[A-Za-z0-9+/]{400,}`)

// wants returns what is missing or too much in the texts.
func (t trial) wants(text string, sent *sent) (problems []error) {
	if !strings.HasPrefix(sent.Texts[0], t.begins) {
		problems = append(problems, fmt.Errorf("the relay's text begins with %.60q, want %q", sent.Texts[0], t.begins))
	}
	for _, part := range t.says {
		if !strings.Contains(text, part) {
			problems = append(problems, fmt.Errorf("the model's text lacks %q", part))
		}
	}
	if n := len([]rune(text)); t.atMost > 0 && n > t.atMost {
		problems = append(problems, fmt.Errorf("the model got %d characters, more than %d", n, t.atMost))
	}
	return problems
}

// isShown returns an error if a picture can't be decoded.
func (p picture) isShown() error {
	data, err := base64.StdEncoding.DecodeString(p.Data)
	if err != nil {
		return fmt.Errorf("a picture is no base64: %w", err)
	}
	if _, format, err := image.DecodeConfig(bytes.NewReader(data)); err != nil || "image/"+format != p.MIMEType {
		return fmt.Errorf("a picture of type %s is %q: %v", p.MIMEType, format, err)
	}
	return nil
}

// short quotes the ends of a text.
func short(text string) string {
	const end = 120
	if len(text) <= 3*end {
		return fmt.Sprintf("%q", text)
	}
	return fmt.Sprintf("%q … %q (%d bytes)", text[:end], text[len(text)-end:], len(text))
}
