package execution

import (
	"context"
	"encoding/json"
	"fmt"

	"colabrelay/executor/journal"
	"colabrelay/executor/jupyter"
)

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
