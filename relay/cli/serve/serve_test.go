package serve

import (
	"context"
	"runtime"
	"testing"

	"colabrelay/relay/op"
)

// A transfer seals on several processors; all other calls share one.
func TestACallThatMovesMuchDataUsesAllProcessors(t *testing.T) {
	all := runtime.GOMAXPROCS(2)
	defer runtime.GOMAXPROCS(all)
	p := &oneProcessor{all: 2, Relay: op.New(op.Config{})}
	runtime.GOMAXPROCS(1)
	during := func(tool string) (seen int) {
		p.Call(context.Background(), op.Request{Tool: tool}, func(op.Result) { seen = runtime.GOMAXPROCS(0) })
		return seen
	}
	if bulk, other, after := during("download_from_colab"), during("check_colab_connection"), runtime.GOMAXPROCS(0); bulk != 2 || other != 1 || after != 1 {
		t.Errorf("processors of a download %d, of another call %d, afterwards %d; want 2, 1, 1", bulk, other, after)
	}
}
