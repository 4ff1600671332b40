package config

import (
	"fmt"
	"path/filepath"
	"strconv"
)

// Bounds of RELAY_PAGE_PORT. The ports below need the rights of an administrator.
const (
	leastPagePort = 1024
	mostPagePort  = 65535
)

// pagePort parses RELAY_PAGE_PORT. If it is unset or wrong, it returns 0: a free port.
func pagePort(text string) (int, error) {
	if text == "" || text == "0" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < leastPagePort || n > mostPagePort {
		return 0, fmt.Errorf("is %q: use a port from %d to %d, or 0 for a free one", text, leastPagePort, mostPagePort)
	}
	return n, nil
}

// ownDir returns the folder of that name in the relay's data folder. A user without a home
// folder has none.
func ownDir(name string) string {
	data, err := DataDir()
	if err != nil {
		return ""
	}
	return filepath.Join(data, "colab-relay", name)
}
