package transfer

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"colabrelay/relay/client"
	"colabrelay/shared/auth"
)

// helperEnv turns the test binary into a process that downloads a file and reports its
// progress on stdout. Tests kill it or give it a small disk.
const helperEnv = "TRANSFER_TEST_HELPER"

// helperTask is the task of the other process.
type helperTask struct {
	URL, Remote, Dir string
	Limit            uint64 // of a file, in bytes; 0 for no limit
	Mount            string // size of a private file system on Dir; empty for none
	Fill             bool   // fill the disk during the download
	RecordDir        string // of its Options
}

func helper() int {
	var task helperTask
	if err := json.Unmarshal([]byte(os.Getenv(helperEnv)), &task); err != nil {
		panic(err)
	}
	r, err := task.run()
	fmt.Println("error:", err)
	fmt.Printf("full: %v done: %d left: %q\n", errors.Is(err, ErrLocalDisk), r.DoneBytes, leftIn(task.Dir))
	if err != nil {
		return 1
	}
	return 0
}

func (task helperTask) run() (Result, error) {
	if task.Limit > 0 {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: task.Limit, Max: task.Limit}); err != nil {
			panic(err)
		}
	}
	if task.Mount != "" {
		if err := syscall.Mount("small", task.Dir, "tmpfs", 0, "size="+task.Mount); err != nil {
			panic(err)
		}
	}
	key, err := auth.NewSecret(secret)
	if err != nil {
		panic(err)
	}
	c, err := client.New(client.Config{BaseURL: task.URL, Secret: key})
	if err != nil {
		panic(err)
	}
	filled := false
	return Download(context.Background(), c, task.Remote, Local{Dir: task.Dir}, Options{RecordDir: task.RecordDir, Report: func(p Progress) {
		fmt.Println("done", p.Done)
		if task.Fill && p.Done > 0 && !filled {
			filled = true
			err := os.WriteFile(filepath.Join(task.Dir, "filler"), make([]byte, 100<<20), 0o600)
			if !errors.Is(err, syscall.ENOSPC) {
				panic(err)
			}
		}
	}})
}

func leftIn(dir string) []string {
	var left []string
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		left = append(left, e.Name())
	}
	return left
}

// startHelper starts the other process; lines is its output.
func startHelper(t *testing.T, task helperTask, attr *syscall.SysProcAttr) (cmd *exec.Cmd, lines *bufio.Scanner) {
	t.Helper()
	text, err := json.Marshal(task)
	must(t, err)
	cmd = exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), helperEnv+"="+string(text))
	cmd.SysProcAttr = attr
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	return cmd, bufio.NewScanner(out)
}

// outcome waits for the helper and returns its last two lines.
func outcome(t *testing.T, cmd *exec.Cmd, lines *bufio.Scanner) string {
	t.Helper()
	var last []string
	for lines.Scan() {
		if !strings.HasPrefix(lines.Text(), "done ") {
			last = append(last, lines.Text())
		}
	}
	must(t, lines.Err())
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return strings.Join(last, "\n")
}

// killMidway kills the helper with SIGKILL once it has moved done bytes.
func killMidway(t *testing.T, cmd *exec.Cmd, lines *bufio.Scanner, done int64) {
	t.Helper()
	for lines.Scan() {
		var now int64
		if _, err := fmt.Sscanf(lines.Text(), "done %d", &now); err == nil && now >= done {
			break
		}
	}
	must(t, cmd.Process.Kill())
	for lines.Scan() {
	}
	_ = cmd.Wait()
}
