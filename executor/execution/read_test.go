package execution

import (
	"testing"
	"time"

	"colabrelay/executor/journal"
	"colabrelay/shared/contract"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

func TestEventsAfterLimitsTheWaitForTheEnd(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	b := newBench(t, stacks.Old(t), settings{})
	id := b.submit("print('early', flush=True)\nimport time\ntime.sleep(60)", 0)
	b.awaitEvent(id, 0)
	began := time.Now()
	x, err := b.journal.Read(t.Context(), id, journal.ReadRequest{Wait: 50 * time.Second, UntilEnd: true, EventsAfter: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 300*time.Millisecond || took > 30*time.Second {
		t.Errorf("answered after %s", took)
	}
	if x.Status != contract.StatusRunning || text(x, contract.Stdout) != "early\n" {
		t.Errorf("%s, %q", x.Status, text(x, contract.Stdout))
	}
	if _, err := b.Interrupt(t.Context(), id); err != nil {
		t.Fatal(err)
	}
}
