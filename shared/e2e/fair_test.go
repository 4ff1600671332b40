package e2e

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"colabrelay/relay/client"
	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/tier"
)

// A hundred relays that share a key get equal shares of one kernel.
func TestAHundredRelaysGetEqualParts(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	e := startExecutor(t, harness.ExecutorConfig{})
	key, err := auth.NewSecret(secret)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	runs := make([]int, 100)
	left := int64(20 * len(runs)) // then all stop
	if longSuites() {
		left *= 10
	}
	var done atomic.Int64
	var relays sync.WaitGroup
	for n := range runs {
		relays.Go(func() {
			c, err := client.New(client.Config{BaseURL: e.Ready.LocalURL, Secret: key})
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			for ctx.Err() == nil {
				x, err := c.Submit(ctx, contract.Submit{Code: "None", WaitSeconds: 40})
				var refused *contract.Error
				switch {
				case err == nil && x.Status == contract.StatusSucceeded:
					runs[n]++
					if done.Add(1) == left {
						cancel()
					}
				case ctx.Err() != nil: // all have stopped
				case err == nil && !x.Status.Finished(): // a busy machine: it waits on, and is not counted
				case errors.As(err, &refused) && (refused.Code == contract.CodeQueueFull || refused.Code == contract.CodeRateLimited):
				default:
					t.Errorf("relay %d: %s, %v", n, x.Status, err)
					return
				}
			}
		})
	}
	relays.Wait()
	fewest, most, all := runs[0], runs[0], 0
	for _, n := range runs {
		fewest, most, all = min(fewest, n), max(most, n), all+n
	}
	t.Logf("%d runs, %d to %d per relay", all, fewest, most)
	if fewest == 0 || 2*fewest < most {
		t.Errorf("one relay has %d runs, another %d", fewest, most)
	}
}
