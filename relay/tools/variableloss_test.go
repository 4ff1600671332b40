package tools

import (
	"testing"
	"time"

	"colabrelay/relay/chunked"
	"colabrelay/relay/runtimes"
)

func TestTrafficIsBoundedThroughATunnelOnly(t *testing.T) {
	keep := chunked.Keep{Every: time.Second, Percent: 5, MaxBytes: 64, TunnelBytes: 100}
	for url, want := range map[string]int64{
		"http://127.0.0.1:8799": 0, "http://localhost:1": 0, "http://[::1]:5": 0,
		"https://x.ngrok.app": 100, "http://10.0.0.5:80": 100, "https://127.0.0.1.example": 100,
	} {
		c := &call{Relay: &Relay{cfg: Config{Keep: keep}}, target: runtimes.Runtime{URL: url}}
		if got := c.keepBounds(); got.RunBytes != want || got.MaxBytes != 64 || got.Share != .05 {
			t.Errorf("%s: %+v", url, got)
		}
		c.cfg.Keep.TunnelBytes = 0
		if got := c.keepBounds(); got.NoFetch != (want > 0) {
			t.Errorf("%s, where a tunnel gets nothing: %+v", url, got)
		}
	}
}
