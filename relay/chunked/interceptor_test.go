package chunked

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"colabrelay/shared/contract"
)

var errCut = errors.New("the connection was cut")

// interceptor is a VM whose requests and answers a test can change.
type interceptor struct {
	VM
	submit func(instanceID *string, s *contract.Submit)                      // before it is sent
	answer func(e contract.Execution, err error) (contract.Execution, error) // of a submit
	events func(events []contract.Event) []contract.Event                    // of any answer
	count  int                                                               // submits
}

func (m *interceptor) SubmitTo(ctx context.Context, instanceID string, s contract.Submit) (contract.Execution, error) {
	m.count++
	if m.submit != nil {
		m.submit(&instanceID, &s)
	}
	e, err := m.VM.SubmitTo(ctx, instanceID, s)
	if m.answer != nil {
		e, err = m.answer(e, err)
	}
	return m.filter(e), err
}

func (m *interceptor) Execution(ctx context.Context, id string, offset int64, wait time.Duration, maxBytes int64) (contract.Execution, error) {
	e, err := m.VM.Execution(ctx, id, offset, wait, maxBytes)
	return m.filter(e), err
}

func (m *interceptor) filter(e contract.Execution) contract.Execution {
	if m.events != nil {
		e.Events = m.events(e.Events)
	}
	return e
}

// snapshot is a file's content. put writes it back, as if the relay was killed at this moment.
type snapshot struct {
	path string
	body []byte
}

func take(t *testing.T, path string) *snapshot {
	t.Helper()
	body, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return &snapshot{path, body}
}

func (s *snapshot) put(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(s.path, s.body, 0o600); err != nil {
		t.Fatal(err)
	}
}
