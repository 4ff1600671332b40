package execution

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"colabrelay/executor/comm"
	"colabrelay/executor/journal"
	"colabrelay/executor/jupyter"
	"colabrelay/shared/contract"
	"colabrelay/shared/memorydir"
)

// FuzzMessages turns any contents of messages, which code in the kernel may send itself, into
// events. Each event is within its bound and can be read again.
func FuzzMessages(f *testing.F) {
	f.Add("stream", []byte(`{"name":"stdout","text":"a\ud800\u0000b"}`), "display_data", []byte(`{"data":{"image/png":"AA=","text/plain":["a"],"x/y":{"a":1}},"metadata":{},"transient":{"display_id":"d"}}`), int64(0))
	f.Add("error", []byte(`{"ename":"E","evalue":1,"traceback":["a",2]}`), "execute_result", []byte(`{"execution_count":-1,"data":{"":null,"application/json":1e999}}`), int64(5))
	f.Add("clear_output", []byte(`{"wait":true}`), "update_display_data", []byte(`{"data":{"image/png":""},"transient":[]}`), int64(-1))
	f.Add("stream", []byte(`{"text":"\u12`), "stream", []byte(`{"name":"`+strings.Repeat("n", 300)+`","text":"x"}`), int64(9))
	f.Add("execute_reply", []byte(`{"status":"error","ename":"E","traceback":[""],"payload":[{"source":"page","data":{"text/plain":"p"}}]}`), "input_request", []byte(`{"prompt":"?","password":true}`), int64(0))
	f.Fuzz(func(t *testing.T, firstType string, first []byte, secondType string, second []byte, cut int64) {
		j, err := journal.Open(journal.Config{Dir: memorydir.New(t), Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		record, err := j.Create(contract.Submit{RequestID: "r", Code: "1"})
		if err != nil {
			t.Fatal(err)
		}
		r := &run{record: record, log: slog.New(slog.DiscardHandler), widgets: &comm.Board{}}
		for _, m := range []*jupyter.Message{
			{Header: jupyter.Header{MsgType: firstType}, Content: first, Metadata: second, Cut: max(0, cut)},
			{Header: jupyter.Header{MsgType: secondType}, Content: second, Metadata: first},
		} {
			receive(r, m)
		}
		r.flush(time.Now())
		record.Finish(contract.StatusSucceeded, "", 0)
		got, err := j.Read(t.Context(), record.ID, journal.ReadRequest{MaxBytes: contract.MaxReadBytes})
		if err != nil || !got.End {
			t.Fatalf("%+v, %v", got, err)
		}
		for _, ev := range got.Events {
			if line, err := json.Marshal(ev); err != nil || len(line) > contract.MaxEventBytes {
				t.Errorf("an event of %d bytes, %v", len(line), err)
			}
		}
	})
}

// receive does with a message what the runner does.
func receive(r *run, m *jupyter.Message) {
	switch m.Header.MsgType {
	case jupyter.MsgExecuteReply:
		var reply jupyter.ExecuteReply
		if m.Cut > 0 {
			reply = hugeReply(m)
		} else if m.Decode(&reply) != nil {
			return
		}
		r.page(&reply)
		r.result(&reply)
	case jupyter.MsgInputRequest:
		r.requestInput(m, time.Now())
	default:
		r.accept(m)
		r.status(m)
		r.output(m, time.Now())
	}
}
