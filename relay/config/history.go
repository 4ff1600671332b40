package config

import (
	"fmt"
	"path/filepath"
	"strconv"
)

// Bounds of RELAY_HISTORY, in MB.
const (
	defaultHistoryMB = 200
	leastHistoryMB   = 1
	mostHistoryMB    = 1 << 20
)

// loadHistory returns the folder of the history and its bound in bytes. The folder is not
// created: the first run does that. If the history is off, the folder is empty.
func loadHistory(s Settings) (dir string, bytes int64, err error) {
	mb := defaultHistoryMB
	switch text := s.Get("RELAY_HISTORY"); text {
	case "":
	case "off":
		return "", 0, nil
	default:
		mb, err = strconv.Atoi(text)
		if err != nil || mb < leastHistoryMB || mb > mostHistoryMB {
			mb, err = defaultHistoryMB, fmt.Errorf("RELAY_HISTORY is %q: use off, or a number of megabytes from %d to %d", text, leastHistoryMB, mostHistoryMB)
		}
	}
	data, found := DataDir()
	if found != nil { // a user without a home folder has no history
		return "", 0, err
	}
	return filepath.Join(data, "colab-relay", "history"), int64(mb) << 20, err
}
