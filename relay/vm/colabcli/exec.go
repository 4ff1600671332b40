package colabcli

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"colabrelay/relay/vm"
)

// runner is the Python function that runs code on the VM and prints its outcome as one line.
//
//go:embed runner.py
var runner string

// maxValue bounds the text of an exception, in bytes.
const maxValue = 1000

// Exec implements vm.Backend. `colab exec` mixes what the code prints with its own messages,
// and ends with code 0 even if the code raised an exception. So the code runs inside a
// function that prints one line of JSON behind a random mark; nothing else is used.
func (b *Backend) Exec(ctx context.Context, id, code string, limit time.Duration) (string, error) {
	if err := usable(id); err != nil {
		return "", err
	}
	mark := "colab-relay-" + rand.Text() + ":"
	seconds := max(1, math.Ceil(limit.Seconds()))
	res, err := b.run(ctx, call{
		argv:  execute.argv([]setting{{session, id}, {timeout, strconv.FormatFloat(seconds, 'f', 0, 64)}}),
		stdin: program(code, mark),
		limit: limit + execMargin,
	})
	if err != nil {
		return "", err
	}
	if out, found := outcomeIn(res.stdout, mark); found {
		return out.result()
	}
	if strings.Contains(res.stderr, "TimeoutError") {
		return "", fmt.Errorf("the code on VM %q, or what its kernel did before, took more than %v and may still run: %w", id, limit, context.DeadlineExceeded)
	}
	return "", b.failed(ctx, id, execute, res)
}

// program returns the code of an exec. Its first line is a comment: without a login, the
// program takes that line for the answer to a question.
func program(code, mark string) string {
	return fmt.Sprintf("%s\ncolab_relay_run(%q, %q, %d, %d)\n", runner, base64.StdEncoding.EncodeToString([]byte(code)), mark, vm.MaxOutput, maxValue)
}

// outcome is what runner.py prints.
type outcome struct {
	Output []byte `json:"output"` // base64 in JSON
	Name   string `json:"name"`   // the exception's class; empty without one
	Value  string `json:"value"`
}

// outcomeIn returns the outcome behind the mark.
func outcomeIn(stdout, mark string) (outcome, bool) {
	var out outcome
	_, rest, found := strings.Cut(stdout, mark)
	line, _, _ := strings.Cut(rest, "\n")
	return out, found && json.Unmarshal([]byte(line), &out) == nil
}

func (o outcome) result() (string, error) {
	if len(o.Output) > vm.MaxOutput || len(o.Name) > maxValue || len(o.Value) > maxValue {
		return "", errors.New("the VM's answer to `colab exec` is longer than its bounds")
	}
	if o.Name != "" {
		return string(o.Output), &vm.ExecError{Name: o.Name, Value: o.Value}
	}
	return string(o.Output), nil
}
