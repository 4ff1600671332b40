package console

import (
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestRepeatedMessagesAreLeftOutAndCounted(t *testing.T) {
	var out strings.Builder
	h := Sparse(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn}))
	now := time.Unix(1e9, 0)
	warn := func(h slog.Handler, message string) (printed string) {
		out.Reset()
		r := slog.NewRecord(now, slog.LevelWarn, message, 0)
		r.AddAttrs(slog.String("execution_id", now.String()))
		if err := h.Handle(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Millisecond)
		return out.String()
	}
	const full = "the disk is full"
	for n := range maxRepeats + 1 {
		if printed := warn(h, full); (printed != "") != (n < maxRepeats) || strings.Contains(printed, "left_out") {
			t.Errorf("message %d: %q", n, printed)
		}
	}
	derived := h.WithAttrs([]slog.Attr{slog.String("component", "x")}).WithGroup("g")
	for range 1000 {
		if printed := warn(derived, full); printed != "" {
			t.Fatalf("another logger prints %q", printed)
		}
	}
	if printed := warn(h, "another message"); printed == "" {
		t.Error("another message is left out")
	}
	now = now.Add(sparsePeriod)
	if printed := warn(h, full); !strings.Contains(printed, "left_out=1001") {
		t.Errorf("a minute later: %q", printed)
	}
	if printed := warn(h, full); printed == "" || strings.Contains(printed, "left_out") {
		t.Errorf("the next one: %q", printed)
	}
}
