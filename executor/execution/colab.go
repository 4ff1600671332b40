package execution

import (
	"context"
	"encoding/json"
	"fmt"

	"colabrelay/executor/jupyter"
)

// msgColabRequest is what google.colab's front-end calls send on iopub, to wait
// on stdin for a page that our kernel doesn't have: userdata.get gives up after
// 10 s, drive.mount after 120 s, files.upload and eval_js never.
const msgColabRequest = "colab_request"

// colabReply is what they take for an answer.
type colabReply struct {
	Type  string          `json:"type"`
	MsgID json.RawMessage `json:"colab_msg_id"`
	Error string          `json:"error"`
}

// answerColab answers a front-end call at once with what to do instead.
func answerColab(ctx context.Context, client *jupyter.Client, m *jupyter.Message) {
	var meta struct {
		MsgID json.RawMessage `json:"colab_msg_id"`
		Type  string          `json:"colab_request_type"`
	}
	if json.Unmarshal(m.Metadata, &meta) != nil || len(meta.MsgID) == 0 {
		return // wants no answer
	}
	// A failed answer leaves the caller where it would be without one.
	_ = client.Reply(ctx, m, jupyter.MsgInputReply, jupyter.InputReply{Value: colabReply{
		Type:  "colab_reply",
		MsgID: meta.MsgID,
		Error: fmt.Sprintf("%s needs the Colab page, which this kernel is not connected to: run it in a notebook cell "+
			"before the executor starts (secrets: os.environ there; Drive: drive.mount there, then use /content/drive here)",
			cut(meta.Type, 100)),
	}})
}
