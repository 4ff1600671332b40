package kernelstate

import (
	"errors"
	"fmt"
	"path"
	"strings"
)

// placePrefix begins the folders that save.py makes in the VM's temp folder.
const placePrefix = "colab-relay-state-"

// maxPath bounds a path that a kernel reports, in bytes.
const maxPath = 4096

// maxBytes bounds a state: code in the kernel, not ours, may report any size. No VM of
// Colab's but the largest has as much memory.
const maxBytes = 100 << 30

// ErrUntrustedReport is a report of the kernel that this relay's own code there would not have
// made: a path outside its folder, a size or a list past its bound.
var ErrUntrustedReport = errors.New("the kernel's report on a state can't be trusted")

// checkPlace refuses a path that is not data.state in a folder as save.py makes them.
// What reports it is the kernel, where the user's code runs: it must not make the relay
// fetch a file of its choice.
func checkPlace(remote string) error {
	folder := path.Base(path.Dir(remote))
	switch {
	case len(remote) > maxPath, !path.IsAbs(remote), path.Clean(remote) != remote,
		path.Base(remote) != dataFile, !strings.HasPrefix(folder, placePrefix) || folder == placePrefix:
		return fmt.Errorf("%w: it names the file %.100q", ErrUntrustedReport, remote)
	}
	return nil
}

// reportItems bound the lists of a report; save.py keeps them shorter. Thirty megabytes
// of {} would take gigabytes.
var reportItems = map[string]int{
	"variables": 5_000, "skipped": 5_000, "modules": 5_000, "failed": 5_000,
	"libraries": 20_000, "overwritten": 20_000, "warnings": 1_000,
}
