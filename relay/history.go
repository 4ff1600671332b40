package main

import (
	"log/slog"

	"colabrelay/relay/client"
	"colabrelay/relay/config"
	"colabrelay/relay/history"
)

// runHistory is the history of runs, or none if the settings switch it off.
type runHistory struct{ *history.Store }

// openHistory returns the history that the settings name. A caller must close it after its
// last request to a VM.
func openHistory(cfg config.Config, log *slog.Logger) runHistory {
	if cfg.HistoryDir == "" {
		return runHistory{}
	}
	return runHistory{history.New(history.Config{Dir: cfg.HistoryDir, MaxBytes: cfg.HistoryBytes, Log: log})}
}

// record is runtimes.Config.Record.
func (h runHistory) record() func(runtime string) client.Recorder {
	if h.Store == nil {
		return nil
	}
	return h.Record
}

func (h runHistory) close() {
	if h.Store != nil {
		h.Close()
	}
}
