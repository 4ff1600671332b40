package account

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"syscall"
	"time"
)

// endLimit bounds the end of marked processes: some may start others faster than they can
// be found.
const endLimit = 5 * time.Second

// ErrStillRunning means that processes remain: they start others faster than they can be ended,
// or this process may not end them.
var ErrStillRunning = errors.New("some processes could not be ended")

// EndKernel kills every process that a kernel of this executor has started, in whatever
// process group, session or namespace it is. No kernel may be starting.
func (u *User) EndKernel() error { return u.end(u.mark(kernelMark)) }

// EndAll is EndKernel for the scripts of this executor as well.
func (u *User) EndAll() error { return errors.Join(u.EndKernel(), u.end(u.mark(scriptMark))) }

// end kills the processes with a mark until a search of all processes finds none and has missed
// none.
func (u *User) end(mark int) error {
	if mark == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), endLimit)
	defer cancel()
	for s := (search{mark: mark, ended: map[string]bool{}}); ; {
		whole := s.others == nil
		seen, err := s.kill()
		switch {
		case err != nil:
			return fmt.Errorf("ending what user %q left running: %w", u.Name, err)
		case seen == noneSeen && whole:
			return nil
		case seen == noneSeen:
			s.others = nil // for a last look at all
		case ctx.Err() == nil:
		case s.trouble != nil:
			return fmt.Errorf("ending what user %q left running: %w: end what is left with `pkill -KILL -u %s`", u.Name, s.trouble, u.Name)
		case seen == oneMissed:
			return nil // they are others' short processes, of which some always end during a search
		default:
			return fmt.Errorf("ending what user %q left running: %w: end them with `pkill -KILL -u %s`", u.Name, ErrStillRunning, u.Name)
		}
	}
}

// sight is what a search has seen of the marked processes.
type sight int

const (
	noneSeen  sight = iota // there is none
	oneMissed              // a process could not be examined, mostly because it had ended: it may have been one, which has started another
	oneSeen                // at least one
)

// search looks for the processes with a mark, again and again. One that forks and exits all
// the time is another process a moment later, so a search kills each process as soon as it
// finds it, and skips those that an earlier one has found to be others.
type search struct {
	mark    int
	others  map[string]bool // process ids; nil before the first search
	ended   map[string]bool // of zombies that had the mark: there may be thousands, so only a whole search looks again
	trouble error           // why the last search could not examine a process that had not ended
}

func (s *search) kill() (seen sight, err error) {
	folder, err := os.Open("/proc")
	if err != nil {
		return noneSeen, err
	}
	defer folder.Close()
	s.trouble = nil
	whole := s.others == nil
	if whole {
		s.others = map[string]bool{}
	}
	for {
		names, err := folder.Readdirnames(1024)
		for _, name := range names {
			if !s.others[name] && (whole || !s.ended[name]) {
				seen = max(seen, s.examine(name))
			}
		}
		if errors.Is(err, io.EOF) {
			return seen, nil
		}
		if err != nil {
			return seen, err
		}
	}
}

// examine kills the process if it has the mark. It holds the process by its descriptor, so it
// never kills another one that got the same id.
func (s *search) examine(name string) sight {
	pid, err := strconv.Atoi(name)
	if err != nil {
		s.others[name] = true // no process
		return noneSeen
	}
	process, err := os.FindProcess(pid)
	if err != nil {
		s.trouble = err
		return oneMissed
	}
	defer process.Release()
	status, err := os.ReadFile(statusFile(pid))
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ESRCH): // it has ended
		return oneMissed
	case err != nil:
		s.trouble = err
		return oneMissed
	case !isMarked(status, s.mark):
		s.others[name] = true
		return noneSeen
	case isOver(status) && s.ended[name]: // its parent has not removed it yet
		return noneSeen
	case isOver(status):
		s.ended[name] = true
		return oneSeen
	case errors.Is(process.Kill(), os.ErrProcessDone):
		return oneMissed
	}
	return oneSeen
}

// isMarked reports whether the process with that /proc/PID/status is in a group.
func isMarked(status []byte, mark int) bool {
	text := []byte(strconv.Itoa(mark))
	for _, group := range field(status, "Groups:") {
		if bytes.Equal(group, text) {
			return true
		}
	}
	return false
}

// isOver reports whether a process has ended, and only its parent can remove what is left of
// it. A process whose first thread has ended is a zombie too, but counts its other threads. What
// is called dead (X) may be a thread that another one has just replaced by starting a program.
func isOver(status []byte) bool {
	state, threads := field(status, "State:"), field(status, "Threads:")
	return len(state) > 0 && string(state[0]) == "Z" && len(threads) > 0 && string(threads[0]) == "1"
}

func statusFile(pid int) string { return "/proc/" + strconv.Itoa(pid) + "/status" }

// field returns the words of a line of /proc/PID/status. The first line, which a process
// chooses, has its newlines escaped.
func field(status []byte, name string) [][]byte {
	_, rest, found := bytes.Cut(status, []byte("\n"+name))
	if !found {
		return nil
	}
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	return bytes.Fields(line)
}

// highestGroup is the highest group id that this process can give to others.
func highestGroup() int {
	highest := 0
	raw, _ := os.ReadFile("/proc/self/gid_map") // without user namespaces there is none, and no limit
	for line := range bytes.Lines(raw) {
		var inside, outside, count int
		if n, _ := fmt.Sscan(string(line), &inside, &outside, &count); n == 3 {
			highest = max(highest, inside+count-1)
		}
	}
	if highest == 0 {
		return 1<<32 - 2
	}
	return highest
}
