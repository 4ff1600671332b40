package op

import (
	"math"
	"testing"
	"time"

	"colabrelay/relay/chunked"
	"colabrelay/relay/runtimes"
)

func TestTrafficIsBoundedThroughATunnelOnly(t *testing.T) {
	keep := chunked.Keep{Every: time.Second, Percent: 5, MaxBytes: 64, TunnelBytes: 100}
	for url, want := range map[string]int64{
		"http://127.0.0.1:8799": math.MaxInt64, "http://localhost:1": math.MaxInt64, "http://[::1]:5": math.MaxInt64,
		"https://x.ngrok.app": 100, "http://10.0.0.5:80": 100, "https://127.0.0.1.example": 100,
	} {
		c := &call{Relay: &Relay{cfg: Config{Keep: keep}}, target: runtimes.Runtime{URL: url}}
		if got := c.keepBounds(); got.TunnelBytes != want || got.MaxBytes != 64 || got.Percent != 5 {
			t.Errorf("%s: %+v", url, got)
		}
	}
}
