package client

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"colabrelay/shared/contract"
)

// diary is a Recorder that writes down what it is told.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) add(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

func (d *diary) Submitted(instance string, s contract.Submit, e contract.Execution) {
	d.add("submitted %s %s %q %s %s %d", instance, s.RequestID, s.Code, e.ExecutionID, e.Status, len(e.Events))
}

func (d *diary) Answered(instance string, e contract.Execution) {
	d.add("answered %s %s %s %d", instance, e.ExecutionID, e.Status, len(e.Events))
}

func (d *diary) Fetched(instance, id string, blob contract.Blob, content []byte) {
	d.add("fetched %s %s %d %q", instance, id, blob.Number, content)
}

func TestARecorderIsToldOfEveryAnswerAboutAnExecution(t *testing.T) {
	content := []byte("bytes of a picture")
	sum := sha256.Sum256(content)
	e := newExecutor(t, func(s seen) (int, any) {
		events := []contract.Event{{Type: contract.EventStream, Text: "a"}}
		switch {
		case strings.Contains(s.path, "blobs"):
			return http.StatusOK, content
		case s.path == contract.PathExecutions && s.method == http.MethodGet:
			return http.StatusOK, contract.ExecutionList{Executions: []contract.Execution{{ExecutionID: "listed"}}}
		case strings.Contains(s.path, "unknown"):
			return http.StatusNotFound, refusalBody(contract.CodeNotFound)
		case s.method == http.MethodGet:
			return http.StatusOK, contract.Execution{ExecutionID: "e1", Status: contract.StatusRunning, Events: events}
		case s.path != contract.PathExecutions:
			return http.StatusOK, contract.Execution{ExecutionID: "e1", Status: contract.StatusInterrupted}
		}
		return http.StatusOK, contract.Execution{ExecutionID: "e1", RequestID: "r1", Status: contract.StatusSucceeded, Events: events}
	})
	kept := &diary{}
	c, err := New(Config{BaseURL: e.URL, Secret: e.secret, Recorder: kept})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx := t.Context()
	blob := contract.Blob{Number: 1, SHA256: hex.EncodeToString(sum[:]), Bytes: int64(len(content))}
	for _, call := range []func() error{
		func() error { _, err := c.Submit(ctx, contract.Submit{RequestID: "r1", Code: "1"}); return err },
		func() error { _, err := c.Execution(ctx, "e1", 0, 0, 0); return err },
		func() error { _, err := c.Interrupt(ctx, "e1"); return err },
		func() error { _, err := c.List(ctx, 1); return err },
		func() error { return c.Blob(ctx, "e1", blob, &bytes.Buffer{}) },
	} {
		if err := call(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Execution(ctx, "unknown", 0, 0, 0); err == nil {
		t.Error("an unknown execution was read")
	}
	blob.SHA256 = strings.Repeat("0", 64)
	if err := c.Blob(ctx, "e1", blob, &bytes.Buffer{}); err == nil {
		t.Error("a blob with another digest was accepted")
	}
	want := []string{
		`submitted instance-1 r1 "1" e1 succeeded 1`, "answered instance-1 e1 running 1",
		"answered instance-1 e1 interrupted 0", `fetched instance-1 e1 1 "bytes of a picture"`,
	}
	if !slices.Equal(kept.lines, want) {
		t.Errorf("the recorder was told\n%s\nwant\n%s", strings.Join(kept.lines, "\n"), strings.Join(want, "\n"))
	}
}
