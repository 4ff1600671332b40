package execution

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"colabrelay/executor/jupyter"
	"colabrelay/executor/kernel"
	"colabrelay/shared/contract"
	"colabrelay/shared/stacks"
	"colabrelay/shared/within"
)

// Code that waits in different ways ends with one interrupt, and the kernel keeps its variables.
func TestOneInterruptEndsCodeHoweverItWaits(t *testing.T) {
	t.Parallel()
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		q := newBench(t, s, settings{})
		for name, waits := range map[string]string{
			"asyncio.sleep":       "import asyncio\n%s\nawait asyncio.sleep(600)",
			"asyncio.gather":      "import asyncio\n%s\nawait asyncio.gather(*(asyncio.sleep(600) for _ in range(3)))",
			"time.sleep":          "import time\n%s\ntime.sleep(600)",
			"a lock":              "import threading\nlock = threading.Lock()\nlock.acquire()\n%s\nlock.acquire()",
			"commands in a row":   "%s\nfor n in range(100):\n  !sleep 600",
			"output of a command": "%s\nfor n in range(100):\n  x = !sleep 600",
			"a script":            "%%%%bash\ntouch %[2]s\nsleep 600",
			"a handler":           "import time\ntry:\n  %s\n  time.sleep(600)\nexcept KeyboardInterrupt:\n  time.sleep(.2)\n  saved = 1",
		} {
			started := filepath.Join(t.TempDir(), "started")
			q.run("kept = 5")
			id := q.submit(fmt.Sprintf(waits+"\n#%[2]s", fmt.Sprintf("open(%q, 'w').close()", started), started), 900)
			within.Until(t, name+" has begun", func() bool { _, err := os.Stat(started); return err == nil })
			if _, err := q.Interrupt(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			x := q.settle(id)
			if x.Status != contract.StatusInterrupted {
				t.Errorf("%s: %s (%s) %+v", name, x.Status, x.Reason, x.Error)
			}
			if got := text(q.run("print(kept)"), contract.Stdout); got != "5\n" {
				t.Errorf("%s: kept = %q", name, got)
			}
		}
		if got := text(q.run("print(saved)"), contract.Stdout); got != "1\n" {
			t.Errorf("the handler did not end: %q", got)
		}
	})
}

// What threads print may come as output of a request that is no run's, such as one that wakes the
// kernel or lists variables.
func TestOutputOfNoRunBelongsToTheNewest(t *testing.T) {
	q := unstarted(t)
	c := unstartedIn(t, q)
	c.msgID = "own"
	r := &runner{q: q, kernel: &kernel.Kernel{}, runs: []*run{c}, current: c}
	for kind, content := range map[string]string{jupyter.MsgStream: `{"name":"stdout","text":"late"}`, jupyter.MsgStatus: `{"execution_state":"idle"}`} {
		m := &jupyter.Message{Header: jupyter.Header{MsgType: kind}, ParentHeader: jupyter.Header{MsgID: "wake"}, Content: []byte(content)}
		if kind == jupyter.MsgStream {
			m.Dropped.Messages, m.Dropped.Bytes = 2, 9
		}
		r.message(t.Context(), m)
		m.ParentHeader.MsgID = ""
		r.message(t.Context(), m)
	}
	c.flush(time.Now())
	x := read(t, q.journal, c.record.ID)
	if got := text(x, contract.Stdout); got != "late" || x.Events[0].Type != contract.EventGap || c.idle {
		t.Errorf("printed %q, idle %v: %+v", got, c.idle, x.Events)
	}
}
