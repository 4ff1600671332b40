package standin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"colabrelay/executor/jupyter"
)

// KernelOptions choose the environment of a Kernel.
type KernelOptions struct {
	Python string   // with ipykernel: stacks.Old(t).Python
	Dir    string   // its working folder, as /content; its sockets are in a folder of their own
	Env    []string // beside the test's environment
}

// Kernel is a real ipykernel without an executor: the notebook's own kernel.
type Kernel struct {
	client *jupyter.Client
	cmd    *exec.Cmd
	files  string

	mu     sync.Mutex // held while code runs: one goroutine receives
	closed sync.Once
}

// StartKernel starts a kernel and waits until it answers, or until ctx ends. Close ends it.
func StartKernel(ctx context.Context, o KernelOptions) (*Kernel, error) {
	files, err := os.MkdirTemp("", "standin-") // a short path: sockets allow 107 bytes
	if err != nil {
		return nil, fmt.Errorf("starting the notebook's kernel: %w", err)
	}
	k := &Kernel{files: files}
	if err := k.start(ctx, o); err != nil {
		k.Close()
		return nil, fmt.Errorf("starting the notebook's kernel: %w", err)
	}
	return k, nil
}

func (k *Kernel) start(ctx context.Context, o KernelOptions) error {
	info, err := jupyter.NewIPC(k.files)
	if err != nil {
		return err
	}
	data, err := json.Marshal(info)
	if err != nil {
		return err
	}
	file := filepath.Join(k.files, "connection.json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return err
	}
	k.cmd = exec.Command(o.Python, "-m", "ipykernel_launcher", "-f", file, "--HistoryManager.enabled=False")
	k.cmd.Dir = o.Dir
	k.cmd.Env = append(append(os.Environ(), "IPYTHONDIR="+k.files), o.Env...)
	leadGroup(k.cmd)
	if err := k.cmd.Start(); err != nil {
		k.cmd = nil
		return err
	}
	k.client, err = jupyter.Dial(ctx, info, jupyter.Options{})
	return err
}

// Interrupt is a click on the page's stop button: SIGINT goes to the kernel's process group.
func (k *Kernel) Interrupt() error { return interruptGroup(k.cmd) }

// Close ends the kernel and its process group. Programs that were started in sessions of their
// own run on, as on Colab.
func (k *Kernel) Close() {
	k.closed.Do(func() {
		if k.client != nil {
			_ = k.client.Close()
		}
		if k.cmd != nil {
			_ = killGroup(k.cmd)
			_ = k.cmd.Wait()
		}
		_ = os.RemoveAll(k.files)
	})
}

// Execute runs code and returns its outputs in nbformat's form. It fits Options.Execute. If ctx
// ends first, the code runs on and an output says so.
func (k *Kernel) Execute(ctx context.Context, code string) (outputs []map[string]any, count int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var got collected
	if err := k.execute(ctx, code, &got); err != nil {
		got.add(map[string]any{"output_type": "error", "ename": "StandinError", "evalue": err.Error(), "traceback": []string{}})
	}
	return got.outputs, got.count
}

func (k *Kernel) execute(ctx context.Context, code string, got *collected) error {
	id, err := k.client.Send(ctx, jupyter.Shell, jupyter.MsgExecuteRequest, jupyter.ExecuteRequest{Code: code, StoreHistory: true})
	if err != nil {
		return err
	}
	for !got.replied || !got.idle {
		m, err := k.client.Receive(ctx)
		if err != nil {
			return err
		}
		if m.ParentHeader.MsgID != id {
			continue
		}
		if m.Dropped.Messages > 0 || m.Cut > 0 {
			return errors.New("the cell printed more than the stand-in holds")
		}
		var content map[string]any
		if err := json.Unmarshal(m.Content, &content); err != nil {
			return err
		}
		got.message(m.Header.MsgType, content)
	}
	return nil
}
