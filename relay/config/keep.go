package config

import (
	"strconv"
	"time"

	"colabrelay/relay/chunked"
)

// Bounds of the settings for what the relay keeps of chunked runs. The relay does not
// hold such a file in memory, but the kernel writes it to the VM's disk: a state of more
// than 4 GB is for save_kernel_state, which the user asks for.
const (
	leastKeepEvery = time.Second
	mostKeepEvery  = 24 * time.Hour
	mostKeepMB     = 4096
	mostTunnelMB   = 1 << 20
)

// defaultKeep is what the relay keeps if nothing is set.
var defaultKeep = chunked.Keep{Every: 30 * time.Second, Percent: 5, MaxBytes: 64 << 20, TunnelBytes: 100 << 20}

// loadKeep reads how much the relay may keep of chunked runs.
func loadKeep(s Settings, problem func(format string, args ...any)) chunked.Keep {
	keep := defaultKeep
	var err error
	if keep.Every, err = duration(s.Get("RELAY_KEEP_EVERY"), keep.Every, leastKeepEvery, mostKeepEvery); err != nil {
		problem("RELAY_KEEP_EVERY %v", err)
	}
	for _, setting := range []struct {
		variable string
		most     float64
		set      func(float64)
	}{
		{"RELAY_KEEP_PERCENT", 100, func(v float64) { keep.Percent = v }},
		{"RELAY_KEEP_MB", mostKeepMB, func(v float64) { keep.MaxBytes = int64(v * (1 << 20)) }},
		{"RELAY_KEEP_TUNNEL_MB", mostTunnelMB, func(v float64) { keep.TunnelBytes = int64(v * (1 << 20)) }},
	} {
		text := s.Get(setting.variable)
		if text == "" {
			continue
		}
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || !(v >= 0 && v <= setting.most) {
			problem("%s is %q: use a number from 0 to %g", setting.variable, text, setting.most)
			continue
		}
		setting.set(v)
	}
	return keep
}
