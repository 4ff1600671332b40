package execution

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"colabrelay/executor/journal"
	"colabrelay/executor/jupyter"
	"colabrelay/shared/contract"
)

// noOffset is the offset of a prompt whose event could not be written.
const noOffset = -1

// prompt is what an input() call asks.
type prompt struct {
	offset   int64 // of its event, or noOffset
	text     string
	password bool
}

func (r *run) requestInput(m *jupyter.Message, now time.Time) {
	var request jupyter.InputRequest
	if err := m.Decode(&request); err != nil {
		r.log.Warn("decoding an input_request", "execution_id", r.record.ID, "err", err)
	}
	r.flush(now)
	var omitted cuts
	if n := len(request.Prompt) - contract.MaxStreamEvent; n > 0 {
		omitted.add("%s of the prompt", counted(n, "byte"))
	}
	r.prompt = prompt{offset: noOffset, text: journal.Shorten(request.Prompt, contract.MaxStreamEvent), password: request.Password}
	if r.emit(contract.Event{
		Time: now.UTC(), Type: contract.EventInputRequest,
		Prompt: r.prompt.text, Password: request.Password, Cut: omitted.String(),
	}) {
		r.prompt.offset = r.record.Snapshot().NextOffset - 1 // only the runner writes events
	}
	r.inputRequest, r.inputSince = m.Parent(), now
	_ = r.record.Update(func(x *contract.Execution) { x.Status = contract.StatusWaitingForInput })
}

// answerInput lets the code continue. The deadline moves by the time that it waited.
func (r *run) answerInput(ctx context.Context, client *jupyter.Client, in contract.Input) error {
	switch {
	case r.inputRequest == nil:
		return ErrNotWaiting
	case in.Offset != nil && *in.Offset != r.prompt.offset:
		return ErrOtherPrompt
	case r.prompt.password && !in.Password:
		return ErrPassword
	}
	if err := client.Reply(ctx, r.inputRequest, jupyter.MsgInputReply, jupyter.InputReply{Value: in.Text}); err != nil {
		return fmt.Errorf("sending the input: %w", err)
	}
	r.inputAnswered(time.Now())
	return nil
}

func (r *run) inputAnswered(now time.Time) {
	r.deadline = r.deadline.Add(now.Sub(r.inputSince))
	r.inputRequest = nil
	_ = r.record.Update(func(x *contract.Execution) { x.Status = contract.StatusRunning })
}

// msgColabRequest is what google.colab's front-end calls send on iopub. They then wait
// on stdin for a page that our kernel does not have: userdata.get for 10 s, drive.mount
// for 120 s, files.upload and eval_js for ever.
const msgColabRequest = "colab_request"

// colabReply is the answer that they expect.
type colabReply struct {
	Type  string          `json:"type"`
	MsgID json.RawMessage `json:"colab_msg_id"`
	Error string          `json:"error"`
}

// answerColab answers a front-end call with an error that says what to do instead.
func answerColab(ctx context.Context, client *jupyter.Client, m *jupyter.Message) {
	var meta struct {
		MsgID json.RawMessage `json:"colab_msg_id"`
		Type  string          `json:"colab_request_type"`
	}
	if json.Unmarshal(m.Metadata, &meta) != nil || len(meta.MsgID) == 0 {
		return // expects no answer
	}
	// If this fails, the caller waits as it would without us.
	_ = client.Reply(ctx, m, jupyter.MsgInputReply, jupyter.InputReply{Value: colabReply{
		Type:  "colab_reply",
		MsgID: meta.MsgID,
		Error: fmt.Sprintf("%s needs the Colab page, to which this kernel is not connected: run it in a notebook cell "+
			"before the executor starts (secrets: set os.environ there; Drive: call drive.mount there, then use /content/drive here)",
			journal.Shorten(meta.Type, 100)),
	}})
}
