// Package colabcli starts and uses Colab's VMs with Google's own command line, the program
// colab of the Python package google-colab-cli.
//
// It uses the program's documented commands new, sessions, upload, exec and stop, and no
// others. It does not talk to Google itself, must not read or change the program's own files,
// and gives it none of the relay's secrets. Start reading at Backend, then commands.go, which
// lists everything that the program is called with.
package colabcli

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"colabrelay/relay/vm"
)

// Config is what a Backend needs.
type Config struct {
	// Program is the path of colab. If it is empty, PATH and ~/.local/bin are searched at each
	// call: hosts often start the relay with a short PATH.
	Program string
	// Dir is the folder for what the relay remembers of the VMs that it asked for. It is
	// created with the first VM.
	Dir string
	// Environ is the environment from which the program gets the variables that it needs; nil
	// is this process's.
	Environ []string
	Log     *slog.Logger // nil for none
}

// Backend is a vm.Backend. Its methods are safe for concurrent use. They work on Linux and
// macOS; Google's program does not run on Windows.
type Backend struct {
	cfg     Config
	records records

	mu        sync.Mutex
	creations map[string]*creation // by id; those whose colab new is running
}

var _ vm.Backend = (*Backend)(nil)

// New returns a Backend. It starts nothing and does not look for the program.
func New(cfg Config) *Backend {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Environ == nil {
		cfg.Environ = os.Environ()
	}
	return &Backend{cfg: cfg, records: records{cfg.Dir, cfg.Log}, creations: map[string]*creation{}}
}

// Name implements vm.Backend.
func (b *Backend) Name() string { return "cli" }

// Specs implements vm.Backend. Google's program cannot tell what the account may start.
func (b *Backend) Specs(context.Context) ([]vm.Spec, error) { return nil, nil }

// Time limits of calls. The program retries some requests itself.
const (
	listLimit   = time.Minute
	stopLimit   = 2 * time.Minute
	uploadLimit = 15 * time.Minute // 256 MiB at 3 Mbit/s
	// createLimit is longer than the program's own attempts: 4 of up to 2 minutes each, and
	// 70 seconds between them.
	createLimit = 12 * time.Minute
	// execMargin is what an exec may take besides the code: reaching or starting the kernel
	// takes up to four attempts of 10 seconds, and a busy kernel is waited for 10 seconds.
	execMargin = time.Minute
)

// Upload implements vm.Backend. The content is in a file that only this user can read while
// the program runs.
func (b *Backend) Upload(ctx context.Context, id, remotePath string, content []byte) error {
	if err := usable(id); err != nil {
		return err
	}
	if len(content) > vm.MaxUpload {
		return errTooLarge(remotePath, len(content))
	}
	dir, err := os.MkdirTemp("", "colab-relay-upload-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	local := filepath.Join(dir, "content")
	if err := os.WriteFile(local, content, 0o600); err != nil {
		return err
	}
	res, err := b.run(ctx, call{argv: upload.argv([]setting{{session, id}}, local, remotePath), limit: uploadLimit})
	if err != nil {
		return err
	}
	if res.code != 0 {
		return b.failed(ctx, id, upload, res)
	}
	return nil
}

// Touch implements vm.Backend: it runs a comment in the VM's kernel, because the program has
// no other command that keeps a VM alive.
func (b *Backend) Touch(ctx context.Context, id string) error {
	_, err := b.Exec(ctx, id, "# colab-relay keeps this VM alive while code runs on it", touchTime)
	return err
}

const touchTime = 20 * time.Second
