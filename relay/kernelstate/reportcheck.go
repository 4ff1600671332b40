package kernelstate

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"colabrelay/shared/contract"
)

// maxPath bounds a path that a kernel reports, in bytes.
const maxPath = 4096

// maxBytes bounds the size of a state, because the user's code in the kernel could report
// any size. Only the largest of Colab's VMs have this much memory.
const maxBytes = 100 << 30

// ErrUntrustedReport is a report that the relay's own code in the kernel would not make: a
// path outside its folder, or a size or list over its bound.
var ErrUntrustedReport = errors.New("the kernel's report on a state can't be trusted")

// checkPlace refuses a path that is not data.state in a folder such as save.py makes. The
// user's code runs in the kernel that reports the path, and must not be able to make the
// relay download any other file.
func checkPlace(remote string) error {
	folder := path.Base(path.Dir(remote))
	switch {
	case len(remote) > maxPath, !path.IsAbs(remote), path.Clean(remote) != remote,
		path.Base(remote) != dataFile, !strings.HasPrefix(folder, contract.StateFolderPrefix) || folder == contract.StateFolderPrefix:
		return fmt.Errorf("%w: it names the file %.100q", ErrUntrustedReport, remote)
	}
	return nil
}

// reportItems bounds the lists of a report; save.py makes them shorter. Without a bound,
// thirty megabytes of {} would take gigabytes of memory.
var reportItems = map[string]int{
	"variables": 5_000, "skipped": 5_000, "modules": 5_000, "failed": 5_000,
	"libraries": 20_000, "overwritten": 20_000, "warnings": 1_000,
}
