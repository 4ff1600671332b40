package probe

import (
	"bufio"
	"bytes"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// cgroup is the memory of one control group, in bytes.
type cgroup struct {
	limit uint64
	used  uint64 // without the page cache that can be reclaimed
}

// version is where one version of control groups keeps its figures.
type version struct {
	mount, limit, used, inactive string
}

var (
	v1 = version{"sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"}
	v2 = version{"sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"}
)

// levels are control groups of one version, the innermost first.
type levels struct {
	version
	dirs []string
}

// read reads the groups that still exist and have a limit.
func (l levels) read(root fs.FS) (found []cgroup) {
	for _, dir := range l.dirs {
		if g, ok := l.version.read(root, dir); ok {
			found = append(found, g)
		}
	}
	return found
}

// limitedLevels are the control groups of this process that have a limit.
//
// In a container, /proc/self/cgroup may contain a path of the host that does not exist
// here. Then the mounted directory is the container's own group.
func limitedLevels(root fs.FS) levels {
	v, dir := ownCgroup(root)
	found := levels{version: v}
	for {
		level := path.Join(v.mount, dir)
		if _, ok := v.read(root, level); ok {
			found.dirs = append(found.dirs, level)
		}
		if dir == "." || dir == "/" || dir == "" {
			return found
		}
		dir = path.Dir(dir)
	}
}

// ownCgroup finds the memory group of this process. It is of version 1 if that has a memory
// controller, and of version 2 otherwise.
func ownCgroup(root fs.FS) (v version, dir string) {
	b, _ := fs.ReadFile(root, "proc/self/cgroup")
	v, dir = v2, "."
	for line := range strings.Lines(string(b)) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) < 3 {
			continue
		}
		own := path.Clean(strings.TrimPrefix(fields[2], "/"))
		if strings.HasPrefix(own, "..") { // a group outside our view of them
			own = "."
		}
		if slices.Contains(strings.Split(fields[1], ","), "memory") {
			return v1, own
		}
		if fields[0] == "0" && fields[1] == "" {
			dir = own
		}
	}
	return v, dir
}

// read returns ok if the group exists and has a limit. Without a limit, version 1 has a
// number near 2^63 and version 2 the word max.
func (v version) read(root fs.FS, dir string) (g cgroup, ok bool) {
	const none = 1 << 62
	if g.limit, ok = number(root, path.Join(dir, v.limit)); !ok || g.limit >= none {
		return cgroup{}, false
	}
	if g.used, ok = number(root, path.Join(dir, v.used)); !ok {
		return cgroup{}, false
	}
	stat, _ := fs.ReadFile(root, path.Join(dir, "memory.stat"))
	g.used -= min(g.used, statField(stat, v.inactive))
	return g, true
}

func number(root fs.FS, name string) (uint64, bool) {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	return n, err == nil
}

// statField is one figure of a memory.stat file, or 0 if the file does not have it.
func statField(stat []byte, name string) uint64 {
	lines := bufio.NewScanner(bytes.NewReader(stat))
	for lines.Scan() {
		if key, value, _ := strings.Cut(lines.Text(), " "); key == name {
			n, _ := strconv.ParseUint(value, 10, 64)
			return n
		}
	}
	return 0
}
