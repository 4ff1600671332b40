package variables

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"colabrelay/executor/jupyter"
	"colabrelay/shared/kernelpy"
)

// The answer is in the reply under answerKey, in a MIME bundle of type answerMIME.
const (
	answerKey  = "answer"
	answerMIME = "application/vnd.colab-relay.namespace+json"
)

// PythonError is an exception that our own code in the kernel raised, because it was
// interrupted or because the user changed IPython itself.
type PythonError struct {
	EName, EValue string
}

func (e *PythonError) Error() string {
	return fmt.Sprintf("python raised %s: %s", e.EName, e.EValue)
}

// ask calls a function of the package in the kernel and decodes what it returns.
//
// The call is a user expression of an execute_request without code, silent and unstored.
// IPython evaluates user expressions without its displayhook, so the call does not count
// as a cell.
func ask(ctx context.Context, client *jupyter.Client, answer any, function string, arguments ...any) error {
	call := kernelpy.Call{Function: function, Arguments: arguments, MIME: answerMIME, Delivery: kernelpy.Reply}
	err := kernelpy.Load(func(withPackage bool) (missing bool, err error) {
		err = evaluate(ctx, client, call.Code(withPackage), answer)
		if errors.Is(err, errMissing) {
			return true, nil
		}
		return false, err
	})
	if err != nil {
		return fmt.Errorf("calling %s in the kernel: %w", function, err)
	}
	return nil
}

// errMissing: the kernel does not have the package, so that nothing was called.
var errMissing = errors.New("the kernel does not have the package")

func evaluate(ctx context.Context, client *jupyter.Client, expression string, answer any) error {
	reply, err := client.Request(ctx, jupyter.Shell, jupyter.MsgExecuteRequest, jupyter.ExecuteRequest{
		Silent:          true,
		UserExpressions: map[string]string{answerKey: expression},
	})
	if err != nil {
		return err
	}
	defer reply.Release()
	return decode(reply.Content, answer)
}

// maxAnswer bounds the reply with an answer, in bytes: it names 1,000 variables, or has a preview of
// 4 KiB. Code in the kernel can write a reply itself, and millions of items of it would take
// gigabytes.
const maxAnswer = 1 << 20

// decode finds the answer in the content of an execute_reply.
func decode(content json.RawMessage, answer any) error {
	if len(content) > maxAnswer {
		return fmt.Errorf("the kernel's reply has %d bytes, over %d: restart the kernel, whose code seems to have changed it, or delete variables with long names", len(content), maxAnswer)
	}
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
	if kernelpy.IsMissing(value.Data) {
		return errMissing
	}
	data, ok := value.Data[answerMIME]
	if !ok {
		return fmt.Errorf("no %s in it", answerMIME)
	}
	return json.Unmarshal(data, answer)
}
