package harness

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Process is what a process has at one moment.
type Process struct {
	Memory      Memory
	Descriptors int      // open files, sockets and pipes
	Sockets     int      // of the descriptors
	Files       []string // paths of the others that have one
	Threads     int
	Children    []int // process ids
}

// ProcessOf reads what a process has from /proc. It fails if the process has ended.
func ProcessOf(pid int) (p Process, err error) {
	if p.Memory, err = MemoryOf(pid); err != nil {
		return p, err
	}
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	descriptors, err := os.ReadDir(filepath.Join(dir, "fd"))
	if err != nil {
		return p, fmt.Errorf("listing the descriptors of process %d: %w", pid, err)
	}
	p.Descriptors = len(descriptors)
	for _, d := range descriptors {
		// A descriptor that was closed meanwhile has no target.
		switch target, _ := os.Readlink(filepath.Join(dir, "fd", d.Name())); {
		case strings.HasPrefix(target, "socket:"):
			p.Sockets++
		case strings.HasPrefix(target, "/"):
			p.Files = append(p.Files, target)
		}
	}
	threads, err := os.ReadDir(filepath.Join(dir, "task"))
	if err != nil {
		return p, fmt.Errorf("listing the threads of process %d: %w", pid, err)
	}
	p.Threads = len(threads)
	for _, t := range threads { // a thread that ended meanwhile has no children
		list, _ := os.ReadFile(filepath.Join(dir, "task", t.Name(), "children"))
		for child := range bytes.FieldsSeq(list) {
			id, err := strconv.Atoi(string(child))
			if err != nil {
				return p, fmt.Errorf("reading the children of process %d: %w", pid, err)
			}
			p.Children = append(p.Children, id)
		}
	}
	return p, nil
}
