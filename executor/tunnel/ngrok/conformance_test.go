package ngrok

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"colabrelay/executor/tunnel/ngroktest"
	"colabrelay/executor/tunnel/tunneltest"
)

// lateGoroutines are the SDK's. They end automatically, but late: the pacer of
// heartbeats at its next tick (10 s), the watcher of a dropped session's
// heartbeats when it misses one (25 s), the reconnect loop when its delay is
// over (30 s at most).
var lateGoroutines = []goleak.Option{
	goleak.IgnoreAnyFunction("golang.ngrok.com/muxado/v2.(*Heartbeat).requester"),
	goleak.IgnoreAnyFunction("golang.ngrok.com/muxado/v2.(*Heartbeat).check"),
	goleak.IgnoreAnyFunction("golang.ngrok.com/ngrok/v2/internal/tunnel/client.(*reconnectingSession).connect"),
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, lateGoroutines...) }

func TestNgrokConforms(t *testing.T) {
	tunneltest.Run(t, func(t *testing.T) tunneltest.Rig {
		edge := ngroktest.Start(t)
		return tunneltest.Rig{
			Tunnel: impatient(t, edgeConfig(edge), time.Hour),
			Drop:   edge.DropSessions,
			Change: func() { edge.StopTunnel("", "stopped in the dashboard") },
			Refuse: func() { edge.RefuseToken("ERR_NGROK_107") },
			Leaks:  append(lateGoroutines, goleak.IgnoreAnyFunction("colabrelay/executor/tunnel/ngroktest.(*Edge).openPublic.func1")),
		}
	})
}
