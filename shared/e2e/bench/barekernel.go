package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"colabrelay/executor/jupyter"
	"colabrelay/shared/e2e/harness"
)

// kernelOf connects to the kernel of an executor directly. No run can be faster than through
// this connection.
func (b *bench) kernelOf(ctx context.Context, e *harness.Executor) (*jupyter.Client, error) {
	var record struct{ PID int }
	if err := readJSON(filepath.Join(e.Config.Dir, ".colab-relay", "kernel.json"), &record); err != nil {
		return nil, err
	}
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", record.PID))
	if err != nil {
		return nil, err
	}
	args := strings.Split(string(cmdline), "\x00")
	var info jupyter.ConnectionInfo
	if err := readJSON(args[slices.Index(args, "-f")+1], &info); err != nil {
		return nil, err
	}
	return b.dial(ctx, info)
}

func readJSON(path string, into any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// dial connects to a kernel. It waits for one that is starting.
func (b *bench) dial(ctx context.Context, info jupyter.ConnectionInfo) (*jupyter.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	c, err := jupyter.Dial(ctx, info, jupyter.Options{})
	if err == nil {
		b.atEnd(func() { c.Close() })
	}
	return c, err
}

// bareKernel starts a kernel without an executor, as a Jupyter client does, and returns when
// it has answered.
func (b *bench) bareKernel(ctx context.Context) (*jupyter.Client, error) {
	dir, err := b.folder(b.memory)
	if err != nil {
		return nil, err
	}
	info, err := jupyter.NewIPC(dir)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(info)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "connection.json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command(b.python, "-m", "ipykernel_launcher", "-f", file, "--HistoryManager.enabled=False")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+dir)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	b.atEnd(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return b.dial(ctx, info)
}

// executeBare runs code until its reply and idle status.
func executeBare(ctx context.Context, c *jupyter.Client, code string) error {
	id, err := c.Send(ctx, jupyter.Shell, jupyter.MsgExecuteRequest, jupyter.ExecuteRequest{Code: code, StoreHistory: true})
	for replied, idle := false, false; err == nil && (!replied || !idle); {
		var m *jupyter.Message
		if m, err = c.Receive(ctx); err != nil || m.ParentHeader.MsgID != id {
			continue
		}
		switch m.Header.MsgType {
		case jupyter.MsgExecuteReply:
			replied = true
		case jupyter.MsgStatus:
			idle = bytes.Contains(m.Content, []byte(`"idle"`))
		}
	}
	return err
}
