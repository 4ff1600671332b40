package variables

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"

	"colabrelay/executor/jupyter"
)

// Where the answer is in the reply: under our key, in a MIME bundle of our type.
const (
	answerKey  = "answer"
	answerMIME = "application/vnd.colab-relay.namespace+json"
)

//go:embed expression.py
var expressionPy string

//go:embed load.py
var loadPy string

//go:embed safe.py
var safePy string

//go:embed facts.py
var factsPy string

//go:embed preview.py
var previewPy string

//go:embed namespace.py
var namespacePy string

// sources are the modules that run in the kernel, each before those that import it.
var sources = [][2]string{
	{"safe", safePy}, {"facts", factsPy}, {"preview", previewPy}, {"namespace", namespacePy},
}

// PythonError is what our own code in the kernel ran into: an interrupt, or a
// kernel whose IPython was changed beyond recognition.
type PythonError struct {
	EName, EValue string
}

func (e *PythonError) Error() string {
	return fmt.Sprintf("python raised %s: %s", e.EName, e.EValue)
}

// ask puts one question to the kernel and decodes its answer.
//
// The way is an execute_request without code, silent and unstored, whose
// user_expressions hold the question: IPython evaluates those after the code,
// past its displayhook, so nothing of it counts as a cell.
func ask(ctx context.Context, client *jupyter.Client, answer any, question ...string) error {
	reply, err := client.Request(ctx, jupyter.Shell, jupyter.MsgExecuteRequest, jupyter.ExecuteRequest{
		Silent:          true,
		UserExpressions: map[string]string{answerKey: expression(question)},
	})
	if err != nil {
		return fmt.Errorf("asking the kernel for %s: %w", question[0], err)
	}
	if err := decode(reply.Content, answer); err != nil {
		return fmt.Errorf("the kernel's answer to %s: %w", question[0], err)
	}
	return nil
}

// expression is the question as Python. A JSON string or list of strings is also
// a Python literal of the same value, as long as characters beyond the basic
// plane stand as they are, which is how encoding/json writes them.
func expression(question []string) string {
	return strings.NewReplacer(
		"LOAD", literal(loadPy),
		"SOURCES", literal(sources),
		"QUESTION", literal(question),
	).Replace(expressionPy)
}

func literal(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings only
	}
	return string(b)
}

// decode finds the answer in the content of an execute_reply.
func decode(content json.RawMessage, answer any) error {
	var reply jupyter.ExecuteReply
	if err := json.Unmarshal(content, &reply); err != nil {
		return fmt.Errorf("not an execute_reply: %v", err)
	}
	if reply.Status != "ok" {
		return &PythonError{reply.EName, reply.EValue}
	}
	var value struct {
		Status string                     `json:"status"`
		EName  string                     `json:"ename"`
		EValue string                     `json:"evalue"`
		Data   map[string]json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(reply.UserExpressions[answerKey], &value); err != nil {
		return fmt.Errorf("no value of our expression: %v", err)
	}
	if value.Status != "ok" {
		return &PythonError{value.EName, value.EValue}
	}
	data, ok := value.Data[answerMIME]
	if !ok {
		return fmt.Errorf("no %s in it", answerMIME)
	}
	return json.Unmarshal(data, answer)
}
