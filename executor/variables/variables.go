// Package variables lists, inspects and deletes the user's variables in a live kernel.
// It leaves no trace in history, In, Out, _ or the execution count, and no name in the
// user's namespace.
//
// It must not run the user's code to inspect an object. The caller must see to it that no
// execution is running, because the kernel would answer only after that. Start reading at
// ask, then at variables/listing.py of shared/kernelpy, which runs in the kernel.
package variables

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"colabrelay/executor/jupyter"
	"colabrelay/shared/contract"
	"colabrelay/shared/kernelpy"
)

// ErrNoVariable means that the namespace does not have the name.
var ErrNoVariable = errors.New("no such variable")

// Variables lists the variables that the user made, without IPython's own, modules, and
// names that begin with an underscore. It counts all of them and describes the first 1,000
// by name. The caller sets KernelID.
func Variables(ctx context.Context, client *jupyter.Client) (contract.Variables, error) {
	var answer contract.Variables
	err := ask(ctx, client, &answer, "variables.listing.variables")
	return answer, err
}

// Inspect describes one variable, with a preview of at most 4 KiB. It accepts any name in
// the namespace, including those that Variables omits. The error is ErrNoVariable if the
// namespace does not have the name. The caller sets KernelID.
func Inspect(ctx context.Context, client *jupyter.Client, name string) (contract.Inspection, error) {
	var answer struct {
		contract.Inspection
		Missing bool `json:"missing"`
	}
	if err := ask(ctx, client, &answer, "variables.listing.inspect", name); err != nil {
		return contract.Inspection{}, err
	}
	if answer.Missing {
		return contract.Inspection{}, ErrNoVariable
	}
	return answer.Inspection, nil
}

// Cleanup deletes what Variables lists, clears Out, _, __, ___ and the last exception,
// closes matplotlib's figures, collects garbage and empties torch's GPU cache. It imports
// no library. Chunked runs run their setup code again after it. The answer names at most
// 1,000 variables. The caller sets KernelID and the memory.
func Cleanup(ctx context.Context, client *jupyter.Client) (contract.Cleanup, error) {
	var answer contract.Cleanup
	err := ask(ctx, client, &answer, "cleanup.cleanup")
	return answer, err
}

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
