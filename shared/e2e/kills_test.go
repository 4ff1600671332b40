package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"colabrelay/relay/client"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/tier"
)

// burst submits quick runs to one state folder, through executors that are killed.
type burst struct {
	t        *testing.T
	log      string // each run appends its number when it runs
	answered []contract.Execution
	open     []contract.Submit // not answered, because a kill came first
	numbers  int
}

// submit submits runs until the executor is killed, which ends ctx.
func (b *burst) submit(ctx context.Context, c *client.Client) {
	for {
		n := b.numbers
		b.numbers++
		s := contract.Submit{RequestID: fmt.Sprint("run-", n), WaitSeconds: 10, Code: fmt.Sprintf(
			"with open(%q, 'a') as f: print(%d, file=f)\nprint('out <&>', %d)\n%d", b.log, n, n, n)}
		x, err := c.Submit(ctx, s)
		switch {
		case ctx.Err() != nil:
			b.open = append(b.open, s)
			return
		case err != nil:
			b.t.Errorf("run %d: %v", n, err)
			return
		}
		if x.Status != contract.StatusSucceeded || !x.End || len(x.Events) == 0 {
			b.t.Errorf("run %d: %s, %d events", n, x.Status, len(x.Events))
		}
		b.answered = append(b.answered, x)
	}
}

// check compares what the next executor says with all that was answered.
func (b *burst) check(c *client.Client) {
	b.t.Helper()
	for _, want := range b.answered {
		got, err := c.Execution(b.t.Context(), want.ExecutionID, 0, 0, contract.MaxReadBytes)
		if err != nil {
			b.t.Fatal(err)
		}
		got.SessionMinutesLeft, want.SessionMinutesLeft = nil, nil
		if got, want := encoded(b.t, got), encoded(b.t, want); !bytes.Equal(got, want) {
			b.t.Fatalf("answered before the kill:\n%s\nafter it:\n%s", want, got)
		}
	}
}

// finish submits again what was not answered: whatever the kill left of it, it ran once at
// most, and it ran if its status says so.
func (b *burst) finish(c *client.Client) {
	b.t.Helper()
	for _, s := range b.open {
		x, err := c.Submit(b.t.Context(), s)
		if err != nil {
			b.t.Fatal(err)
		}
		ran := b.ran(strings.TrimPrefix(s.RequestID, "run-"))
		switch {
		case x.Status == contract.StatusSucceeded && ran == 1,
			x.Status == contract.StatusCancelled && ran == 0,
			x.Status == contract.StatusLost && ran <= 1:
		default:
			b.t.Errorf("%s is %s (%s) and ran %d times", s.RequestID, x.Status, x.Reason, ran)
		}
	}
	for _, x := range b.answered {
		if ran := b.ran(strings.TrimPrefix(x.RequestID, "run-")); ran != 1 {
			b.t.Errorf("%s ran %d times", x.RequestID, ran)
		}
	}
	b.open = nil
}

// ran is how often the run with the number ran.
func (b *burst) ran(number string) int {
	b.t.Helper()
	log, err := os.ReadFile(b.log)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // the first kill may come before the first run
		b.t.Fatal(err)
	}
	return strings.Count("\n"+string(log), "\n"+number+"\n")
}

func encoded(t *testing.T, x contract.Execution) []byte {
	t.Helper()
	raw, err := json.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// Killed at any moment of a burst of quick runs, the executor loses no run that it has
// answered, and none runs twice.
func TestKillsDuringABurstOfQuickRunsLoseNoAnswer(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	kills := 4
	if os.Getenv("LONG") != "" {
		kills = 100
	}
	dir := t.TempDir()
	b := &burst{t: t, log: filepath.Join(t.TempDir(), "log")}
	for kill := 0; kill < kills || len(b.answered) == 0 && kill < 20; kill++ { // a busy machine may answer none for a while
		e := startExecutor(t, harness.ExecutorConfig{Dir: dir})
		c := relayClient(t, e)
		b.check(c)
		b.finish(c)
		answered := len(b.answered)
		ctx, cancel := context.WithCancel(within(t))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			b.submit(ctx, c)
		}()
		<-time.After(time.Duration(random.Int64N(int64(max(1, kill-kills+2)) * int64(500*time.Millisecond))))
		e.Kill()
		cancel()
		<-ended
		t.Logf("seed %d, kill %d: %d answered", seed, kill, len(b.answered)-answered)
	}
	e := startExecutor(t, harness.ExecutorConfig{Dir: dir})
	b.check(relayClient(t, e))
	b.finish(relayClient(t, e))
	if len(b.answered) == 0 {
		t.Error("no run was answered before a kill")
	}
}
