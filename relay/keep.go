package main

import (
	"strconv"
	"time"

	"colabrelay/relay/tools"
)

// Bounds of the settings of what is kept of chunked runs. The file of one run is held in
// no memory, but the kernel writes it to the VM's disk: over 4 GB of it would be a state
// to save, not something to keep by the way.
const (
	leastKeepEvery = time.Second
	mostKeepEvery  = 24 * time.Hour
	mostKeepMB     = 4096
	mostTunnelMB   = 1 << 20
)

// defaultKeep is what is kept where nothing is set.
var defaultKeep = tools.Keep{Every: 30 * time.Second, Percent: 5, MaxBytes: 64 << 20, TunnelBytes: 100 << 20}

// loadKeep reads what may be kept of chunked runs.
func loadKeep(s settings, fault func(format string, args ...any)) tools.Keep {
	keep := defaultKeep
	if text := s.get("RELAY_KEEP_EVERY"); text != "" {
		every, err := time.ParseDuration(text)
		if err != nil || every < leastKeepEvery || every > mostKeepEvery {
			fault("RELAY_KEEP_EVERY is %q: write a duration from %s to %s, such as 30s", text, leastKeepEvery, mostKeepEvery)
		} else {
			keep.Every = every
		}
	}
	for _, setting := range []struct {
		name string
		most float64
		take func(float64)
	}{
		{"RELAY_KEEP_PERCENT", 100, func(v float64) { keep.Percent = v }},
		{"RELAY_KEEP_MB", mostKeepMB, func(v float64) { keep.MaxBytes = int64(v * (1 << 20)) }},
		{"RELAY_KEEP_TUNNEL_MB", mostTunnelMB, func(v float64) { keep.TunnelBytes = int64(v * (1 << 20)) }},
	} {
		text := s.get(setting.name)
		if text == "" {
			continue
		}
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || !(v >= 0 && v <= setting.most) {
			fault("%s is %q: write a number from 0 to %g", setting.name, text, setting.most)
			continue
		}
		setting.take(v)
	}
	return keep
}
