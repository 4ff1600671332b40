package journal

import (
	"fmt"
	"log/slog"
	"testing"

	"colabrelay/shared/contract"
)

// BenchmarkStart opens a journal of 5,000 past runs.
func BenchmarkStart(b *testing.B) {
	cfg := Config{Dir: b.TempDir(), Limits: Limits{Kept: 5000}, Log: slog.New(slog.DiscardHandler)}
	j, err := Open(cfg)
	must(b, err)
	for n := range 5000 {
		r, err := j.Create(contract.Submit{RequestID: fmt.Sprint("request-", n), Code: "print('one line')"})
		must(b, err)
		must(b, r.Update(func(x *contract.Execution) { x.Status = contract.StatusRunning }))
		must(b, r.Append(stdout("one line\n")))
		r.Finish(contract.StatusSucceeded, "", 1<<30)
		r.CloseLog()
	}
	for b.Loop() {
		_, err := Open(cfg)
		must(b, err)
	}
}
